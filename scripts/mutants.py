"""The faults that scripts/mutate.py plants. One row a fault: a name that says what goes wrong, the file, the text as it
stands there (exactly once), the text that replaces it, and the tests that must notice (an executable of tests/, with
arguments if only some of its cases are meant: "ir_test --test-case=*hash*").

A row whose text has moved is a failure: change the row together with the code.
"""

MUTANTS = []


def fault(name, file, old, new, *tests):
    MUTANTS.append({"name": name, "file": file, "old": old, "new": new, "tests": list(tests)})


# --- src/base: storage types and views
fault("bf16 ties go away from zero instead of to even", "include/coda/dtype.h",
      "u += 0x7fffu + ((u >> 16) & 1u);", "u += 0x8000u;", "base_test")
fault("bf16 NaN is rounded like a number", "include/coda/dtype.h",
      "if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};", "", "base_test")
fault("f16 subnormals are flushed to zero", "include/coda/dtype.h",
      "float magnitude = static_cast<float>(rest) * 0x1p-24f;", "float magnitude = 0 * static_cast<float>(rest);",
      "base_test")
fault("f16 overflows one step early", "include/coda/dtype.h", "if (u >= 0x477ff000u)", "if (u >= 0x477fe000u)", "base_test")
fault("fp64 is rounded twice on its way to 16 bits", "src/base/dtype.cc", "u |= 1u;", "", "base_test")
fault("a view's outer columns use the inner stride", "include/coda/tensor.h",
      "row_stride + (c / col_block) * col_outer", "row_stride + (c / col_block) * col_stride", "base_test")
fault("a range of rows starts one block late", "src/base/tensor.cc", "return {first / block * outer, block};",
      "return {(first / block + 1) * outer, block};", "base_test")
fault("a range inside a block starts at the block", "src/base/tensor.cc", "first / block * outer + first % block * stride",
      "first / block * outer", "base_test")
fault("columns of a matrix that overlap are taken as separate", "src/base/overlap.cc",
      "if (inner_count > 1 && inner < slot) return false;", "", "overlap_test")
fault("an overlap within one row is missed", "src/base/overlap.cc",
      "if (x.begin < y.end && y.begin < x.end) return false;", "", "overlap_test")
fault("overlapping rows of an output are accepted", "src/base/tensor.cc", "if (std::abs(a.stride) < extent)",
      "if (std::abs(a.stride) < 1)", "base_test")
fault("a misaligned pointer is accepted", "src/base/tensor.cc", "% size_of(v.dtype) != 0", "% 1 != 0", "base_test")

# --- src/base: threads
fault("a parallel loop drops its last index", "src/base/thread_pool.cc", "if (index >= count_) return;",
      "if (index >= count_ - 1) return;", "thread_pool_test")
fault("a parallel loop returns before its workers are done", "src/base/thread_pool.cc",
      "while (inside != 0) inside = wait_for_change(state_, inside);", "(void)inside;", "thread_pool_test")
fault("the exception of a later index wins", "src/base/thread_pool.cc", "index < error_index_", "index > error_index_",
      "thread_pool_test")

# --- src/ir: sizes, types, the law, the hash, text
fault("sizes lose a denominator when they are added", "src/ir/dim.cc", "slot.num * c.den + c.num * slot.den",
      "slot.num * c.den + c.num", "text_test")
fault("a size that is no whole number is accepted", "src/ir/dim.cc", "if (total.den != 1 || total.num < 0)",
      "if (total.num < 0)", "ir_test")
fault("an odd width may be halved", "src/ir/type_rules.cc", "% 2 != 0)", "% 2 > 1)", "text_test")
fault("split need not cover every column", "src/ir/type_rules.cc", "if (!(total == cols))", "if (false)", "text_test")
fault("a tile value may depend on a finish value", "src/ir/program.cc",
      "(is_tile_shaped(t) || tile >= 0))", "(is_tile_shaped(t) && tile >= 100))", "text_test")
fault("a second source is accepted", "src/ir/program.cc", "if (!same_a && !same_b)", "if (false)", "text_test")
fault("`over` may name an operand of @", "src/ir/program.cc", "if (v == in->value)", "if (false)", "ir_test")
fault("the hash does not see constants", "src/ir/graph.cc", 'if (n.op == Op::kLiteral) out_ +=',
      'if (false) out_ +=', "ir_test")
fault("the hash does not see the axis of a reduction", "src/ir/graph.cc",
      "if (row(n.op).has(kReduceTrait)) out_ +=", "if (false) out_ +=", "ir_test")

# --- src/ir, src/grad: definitions and derivatives
fault("a rotation turns the wrong way", "src/ir/composites.cc", "{a * c - b * s, a * s + b * c}",
      "{a * c + b * s, b * c - a * s}", "programs_test")
fault("RMSNorm's gradient misses the term of its statistic", "src/ir/grad_composites.cc",
      "r * (d * gamma - normed * (s / width))", "r * (d * gamma)", "op_table_test")
fault("LayerNorm's gradient misses the mean's term", "src/ir/grad_composites.cc",
      "d * gamma - s1 / width - normed", "d * gamma - normed", "op_table_test")
fault("a value used twice keeps only the last gradient", "src/grad/reverse.cc",
      "place->second = place->second + gradient", "place->second = gradient", "op_table_test")
fault("argmax takes the highest index of equals", "src/ir/eval_reduce.cc", "x > best.value", "x >= best.value",
      "programs_test", "op_table_test")
fault("moments are taken about zero", "src/ir/eval_reduce.cc", "(x.data[at(i)] - mean) * (x.data[at(i)] - mean)",
      "x.data[at(i)] * x.data[at(i)]", "op_table_test", "programs_test")
fault("stores of the interpreter do not round", "src/ir/interpret.cc", "x = round_to(o.dtype, x)", "x = x + 0",
      "programs_test")

# --- src/cpu/kernels: packing and the multiply of a tile
fault("the last K of a block is not packed", "src/cpu/kernels/pack.cc",
      "std::min(kChunk, k_range_.count - k)", "std::min(kChunk, k_range_.count - k - 1)", "cpu_kernels_test")
fault("a packed run of K is put at the block's begin", "src/cpu/kernels/pack.cc",
      "packer_.from_mn_major(at(mn, k), k_.stride, length, count, panel_of(mn) + k * k_bytes_, panel_bytes_);",
      "packer_.from_mn_major(at(mn, k), k_.stride, length, count, panel_of(mn), panel_bytes_);", "cpu_kernels_test")
fault("columns beyond the tile are not masked", "src/cpu/kernels/kernel_loop.h",
      "smaller<std::int64_t>(n - j, K::kNr)", "K::kNr", "cpu_kernels_test")
fault("the next panel of A is multiplied", "src/cpu/kernels/kernel_loop.h",
      "packed_k, a, b, c + i * ldc + j", "packed_k, a + packed_k, b, c + i * ldc + j", "cpu_kernels_test")
fault("later K blocks overwrite instead of adding", "src/cpu/kernels/tile_gemm.cc",
      "packed_a, packed_b, c, ldc, accumulate);\n}", "packed_a, packed_b, c, ldc, accumulate && k == 0);\n}",
      "cpu_kernels_test")

# --- src/cpu/attention
fault("the running output is not rescaled when the maximum grows", "src/cpu/attention/forward.cc",
      "w.o[r * width + c] *= w.alpha[r]", "w.o[r * width + c] *= 1", "attention_test")
fault("queries see later keys of their block", "src/cpu/attention/forward.cc", "bool diagonal = j == block;",
      "bool diagonal = false;", "attention_test")
fault("the gradient takes the diagonal block for a whole one", "src/cpu/attention/backward.cc",
      "bool diagonal = j == block;", "bool diagonal = false;", "attention_test")

# --- src/plan, src/model
fault("an input of the plan may be written", "src/plan/plan.cc", "if (b.role == BufferRole::kInput)\n", "if (false)\n", "plan_test")
fault("a temporary is read before it is written", "src/plan/plan.cc", "if (!holds_something)", "if (false)", "plan_test")
fault("outputs share memory with inputs", "src/plan/plan.cc", "if (apart(out, in)) continue;", "continue;", "plan_test")
fault("a loop's last chunk is all that an output keeps", "src/plan/plan.cc", "if (in_loop_ && !r.chunk && !accumulate &&",
      "if (false && !r.chunk && !accumulate &&", "plan_test")
fault("a buffer of the loop dies before the loop ends", "src/plan/plan.cc", "int last = loop == nullptr ? i : loop->last - 1;",
      "int last = i;", "plan_test")
fault("the program's sizes and the plan's mix by name", "src/plan/bind.cc",
      'd = d.substitute(name, Dim::symbol("?" + name));', "d = d.substitute(name, value);", "plan_test")
fault("a shape that contradicts another is accepted", "src/plan/bind.cc", "expected != e.in_plan)", "false)", "plan_test")
fault("temporaries that are alive together share bytes", "src/plan/arena.cc",
      "block.life.first <= other.life.last)", "block.life.first < other.life.last)", "plan_test")
fault("the arena takes the first gap, not the best", "src/plan/arena.cc", "(best < 0 || gap < best_size)", "best < 0", "plan_test")
fault("a loop's scratch is read at the chunk's rows", "src/plan/reference.cc", "plan_.is_scratch(r, *w.loop) ? 0 : w.row0", "w.row0",
      "plan_test")
fault("the library's bf16 is not retyped", "src/plan/program_library.cc", "DType::kBF16, storage);", "DType::kBF16, DType::kBF16);",
      "plan_test")
fault("accumulation costs no read", "src/plan/program_cost.cc", "(o.accumulate ? 2 : 1)", "1", "cost_test")
fault("partials cost nothing", "src/plan/program_cost.cc", "return 2 * 4 * count *", "return 0 * count *", "cost_test")
fault("the last, shorter chunk costs nothing", "src/plan/cost.cc", "if (tail > 0) add_run", "if (false) add_run", "cost_test")
fault("the stream's gradient skips the attention block", "src/model/llama_plan.cc",
      'dx = qkv_backward(p, grad, f.qkv, d, f.in, dx, "dx0"', 'qkv_backward(p, grad, f.qkv, d, f.in, dx, "dx0"', "llama_plan_test")
fault("a tied head's gradient goes astray", "src/model/llama_plan.cc", 'find(c_.tied ? "grad.embedding" : "grad.head")',
      'find(c_.tied ? "grad.layer0.wg" : "grad.head")', "llama_plan_test")
fault("norm weights' gradients are overwritten", "src/model/llama_plan.cc", '{{"dx", dx}, {"h", h}, {"dgamma", grad.norm2}}, {}, {"dgamma"});',
      '{{"dx", dx}, {"h", h}, {"dgamma", grad.norm2}}, {}, {});', "llama_plan_test")
fault("the next layer's norm is this layer's", "src/model/llama_plan.cc", 'fmt::format("layer{}.norm1", l + 1)',
      'fmt::format("layer{}.norm1", l)', "llama_plan_test")
fault("rotary tables of the wrong base", "src/model/llama.cc", "std::pow(c.rope_base, -2.0", "std::pow(c.rope_base, -1.0", "llama_plan_test")
