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
fault("sizes lose a denominator when they are added", "src/ir/dim.cc", "times(c.num, slot.den)), times(slot.den, c.den)",
      "c.num), times(slot.den, c.den)", "text_test")
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
fault("norm weights' gradients are overwritten", "src/model/llama_plan.cc", 'out, {}, {"dgamma"});', "out, {}, {});",
      "llama_plan_test")
fault("the next layer's norm is this layer's", "src/model/llama_plan.cc", 'fmt::format("layer{}.norm1", l + 1)',
      'fmt::format("layer{}.norm1", l)', "llama_plan_test")
fault("rotary tables of the wrong base", "src/model/llama.cc", "std::pow(c.rope_base, -2.0", "std::pow(c.rope_base, -1.0", "llama_plan_test")

# --- src/plan/lower.cc: programs to strips
fault("a piece's operands are loaded from the tensor's first column", "src/plan/lower.cc", "op.first_col = first;",
      "op.first_col = 0;", "lower_test")
fault("a piece's product begins at the weight's first row", "src/plan/lower.cc",
      "lane.first_col = cuts_.begin(acc.value, piece);", "lane.first_col = 0;", "lower_test")
fault("a piece is stored at the output's first column", "src/plan/lower.cc",
      "b.value(o.value, piece), cuts_.begin(o.value, piece)", "b.value(o.value, piece), 0", "lower_test")
fault("only the first term along K is multiplied", "src/plan/lower.cc", "lane.terms.push_back(term);",
      "if (lane.terms.empty()) lane.terms.push_back(term);", "cpu_backend_test")
fault("a strip's share of a reduction begins at column 0", "src/plan/lower.cc", "-1, cuts_.begin(v, piece)}", "-1, 0}",
      "lower_test")
fault("a group may be cut", "src/plan/lower.cc", "bool inside_group = ", "bool inside_group = false && ", "lower_test")
fault("one number of all columns may be made of a tile's", "src/plan/lower.cc",
      "if (s_.tile(v) && !s_.has_columns(v)) refuse_one_column(s_, v);", "", "lower_test")
fault("units forget that groups stay whole", "src/plan/lower.cc", "? v.groups : v.cols)", "? v.width() : v.cols)",
      "lower_test")

# --- src/cpu: instructions of the epilogue
fault("what is reduced shares its buffer with what comes later", "src/cpu/compile.cc",
      "last[idx(r.value)] = position;", "", "lower_test")
fault("parts of a head are all its first columns", "src/cpu/compile.cc", "i.src_first = first;", "i.src_first = 0;",
      "cpu_cases_test")
fault("parts of a head are all joined at its first column", "src/cpu/compile.cc", "i.dst_first = first;",
      "i.dst_first = 0;", "cpu_cases_test")
fault("a - (b + c) is (b + c) - a", "src/cpu/compile.cc", "second.op.op, side == 1)", "second.op.op, side == 0)",
      "lower_test")
fault("a value that two read is made by only one of them", "src/cpu/compile.cc", "uses[idx(operand)] != 1", "false",
      "lower_test")

# --- src/cpu: the tile machine
fault("every block of a tile loads the tile's first rows", "src/cpu/tile.cc", "i.level == Level::kBlock ? row0 + r : 0",
      "i.level == Level::kBlock ? tile_.row0 + r : 0", "cpu_blocks_test")
fault("per-row operands restart in every block", "src/cpu/tile.cc", "{place.base + place.pitch * 4, 1, 0}",
      "{place.base, 1, 0}", "cpu_blocks_test")
fault("column vectors are those of the first tile", "src/cpu/tile.cc",
      "std::int64_t n = columns(out), col = i.op.first_col + tile_.unit0 * value(out).unit_width;",
      "std::int64_t n = columns(out), col = i.op.first_col;", "cpu_backend_test")
fault("col() counts from the tile's first column", "src/cpu/tile.cc",
      "std::int64_t first = i.op.first_col + tile_.unit0", "std::int64_t first = i.op.first_col + 0 * tile_.unit0",
      "cpu_plan_test")
fault("row() counts from the block's first row", "src/cpu/tile.cc", "static_cast<std::int32_t>(row0 + r);",
      "static_cast<std::int32_t>(r);", "lower_test")
fault("every row has the same random numbers", "src/cpu/tile.cc", "std::int64_t first = row0 * i.op.row_width +",
      "std::int64_t first = 0 * row0 +", "lower_test")
fault("+= of a tile replaces", "src/cpu/tile.cc",
      "bool accumulate = graph_.outputs()[idx(s.output)].accumulate;", "bool accumulate = false;", "cpu_backend_test")
fault("every block is stored over the tile's first rows", "src/cpu/tile.cc", "tile_.row0 + r0 + r, col, n,",
      "tile_.row0 + r, col, n,", "cpu_blocks_test")
fault("column sums go on from the tile before", "src/cpu/tile.cc", "std::fill(parts.begin(), parts.end(), 0.0f);", "",
      "cpu_backend_test")
fault("column partials all go to the first row tile", "src/cpu/tile.cc", "part(tile_.row_tile, p) + col",
      "part(0, p) + col", "cpu_backend_test")
fault("column partials all go to the first columns", "src/cpu/tile.cc", "part(tile_.row_tile, p) + col",
      "part(tile_.row_tile, p)", "cpu_backend_test")
fault("a block's row partials go to the tile's first rows", "src/cpu/tile.cc", "p) + tile_.row0 + r0;",
      "p) + tile_.row0;", "cpu_blocks_test")
fault("argmax counts from the tile's first column", "src/cpu/tile.cc",
      "index()[row] += static_cast<std::int32_t>(first_col);", "index()[row] += 0;", "cpu_backend_test")
fault("a payload that is the same in every row is read as rows", "src/cpu/tile.cc", "payload.row_step,", "pitch_,",
      "lower_test")
fault("moments forget the rows of the blocks before", "src/cpu/tile.cc", "ops_.moments_m(b, r0,", "ops_.moments_m(b, 0,",
      "cpu_blocks_test")

# --- src/cpu: tiles, panels, threads
fault("the last column tile is dropped", "src/cpu/kernel.cc", "plan.col_tiles = ceil_div(strip.units, plan.tile_units);",
      "plan.col_tiles = std::max<std::int64_t>(strip.units / plan.tile_units, 1);", "cpu_cases_test")
fault("the last row tile is dropped", "src/cpu/kernel.cc", "g.row_tiles = ceil_div(g.rows, g.tile_rows);",
      "g.row_tiles = g.rows / g.tile_rows;", "cpu_backend_test")
fault("a tile is skipped where chunks of columns meet", "src/cpu/kernel.cc", "c < (chunk + 1) * tiles / chunks; ++c",
      "c < (chunk + 1) * tiles / chunks - (chunk + 1 < chunks ? 1 : 0); ++c", "cpu_backend_test")
fault("a task packs the first row tile of A", "src/cpu/kernel.cc", "pack(row_tile, aligned(w.packed_a));",
      "pack(0, aligned(w.packed_a));", "cpu_backend_test")
fault("tasks that share A get its first row tile", "src/cpu/kernel.cc", "aligned(packed_a_) + stride * idx(row_tile) :",
      "aligned(packed_a_) :", "cpu_backend_test")
fault("a term along K replaces the terms before", "src/cpu/kernel.cc", "started = true;", "started = false;",
      "cpu_backend_test")
fault("column tiles share the panels of the first", "src/cpu/kernel.cc", "q.first == p.first &&", "", "cpu_backend_test")
fault("without any K the tile keeps what it held", "src/cpu/kernel.cc", "if (!started)", "if (false)", "cpu_backend_test")
fault("mixed operands are read in the kernel's dtype", "src/cpu/kernel.cc", "bool mixed = dtypes.size() > 1;",
      "bool mixed = false;", "cpu_backend_test")
fault("a reduction misses the strips after the first", "src/cpu/kernel.cc",
      "reduction == static_cast<int>(r)) shares.push_back", "reduction == static_cast<int>(r) && shares.empty()) shares.push_back",
      "cpu_backend_test")

# --- src/cpu: merging and finish
fault("a sum takes the partials of the first tile alone", "src/cpu/partials.cc", "tile < s->tiles()", "tile < 1",
      "cpu_backend_test")
fault("sums of exponentials are merged without their maxima", "src/cpu/partials.cc", "to.b = to.b * x + from.b * y;",
      "to.b = to.b + from.b;", "lower_test")
fault("payloads are merged without their maxima", "src/cpu/partials.cc", "to.c = to.c * x + from.c * y;",
      "to.c = to.c + from.c;", "lower_test")
fault("variances are merged without the means' distance", "src/cpu/partials.cc", "+ delta * delta * (n_a * n_b / n);",
      ";", "lower_test")
fault("means are merged with the other's weight", "src/cpu/partials.cc", "to.a += delta * (n_b / n);",
      "to.a += delta * (n_a / n);", "lower_test")
fault("of equal maxima in two tiles the later wins", "src/cpu/partials.cc", "value == best && index < best_index",
      "value == best && index > best_index", "cpu_backend_test")
fault("a maximum loses the NaN of a later tile", "src/cpu/partials.cc", "if (std::isnan(from.a) || from.a > to.a)",
      "if (from.a > to.a)", "cpu_blocks_test")
fault("+= of a finish replaces", "src/cpu/finish.cc", "bool accumulate = graph_.outputs()[idx(s.output)].accumulate;",
      "bool accumulate = false;", "cpu_backend_test")
fault("a finish broadcasts no single number", "src/cpu/finish.cc", "size(i.in[k]) == 1 && n != 1 ? 0 : 1", "1",
      "cpu_cases_test")

# --- src/cpu: vectors
fault("the tail of a row's maximum is not masked", "src/cpu/vec/reduce_inl.h",
      "maximum(partial[which.value], filled(load<Float>(x + j, extent), extent, -kInf))",
      "maximum(partial[which.value], load<Float>(x + j, extent))", "cpu_blocks_test")
fault("the tail of a row's deviations is not masked", "src/cpu/vec/reduce_inl.h",
      "filled(load<Float>(x + j, extent) - first, extent, 0.0f)", "load<Float>(x + j, extent) - first", "cpu_vec_reduce_test")
fault("column maxima forget the blocks before", "src/cpu/vec/columns_inl.h",
      "max_of_rows(b, j, load<Float>(acc + j, extent), extent)", "max_of_rows(b, j, splat(-kInf), extent)", "cpu_blocks_test")

# --- src/cpu: what is refused, plans
fault("outputs may overlap anything", "src/cpu/checks.cc", "views_overlap(*out.view, *other.view)", "false",
      "cpu_input_test")
fault("a tensor of another dtype is accepted", "src/cpu/checks.cc", "if (v.dtype != b.dtype)", "if (false)",
      "cpu_input_test")
fault("a tensor of another shape is accepted", "src/cpu/checks.cc", "if (v.rows != rows || v.cols != cols)",
      "if (v.rows != rows && v.cols != cols)", "cpu_input_test")
fault("indices of the caller are not checked", "src/cpu/backend.cc", "if (c.at_start) check(c, 0, 0);", "",
      "cpu_input_test")
fault("the ignored target is refused", "src/cpu/backend.cc", "for (int k : rule.ignore_inputs)",
      "for (int k : std::vector<int>{})", "cpu_input_test")
fault("indices are checked in the first chunk's rows only", "src/cpu/backend.cc",
      "if (c.at_start) c.ref.chunk = false;", "", "cpu_plan_test")
fault("indices of a loop are checked beyond the chunk", "src/cpu/backend.cc",
      "if (c.at_start) c.ref.chunk = false;", "c.ref.chunk = false;", "cpu_plan_test")
fault("the last, shorter chunk is not run", "src/cpu/backend.cc", "for (std::int64_t r = 0; r < rows; r += loop->chunk)",
      "for (std::int64_t r = 0; r + loop->chunk <= rows; r += loop->chunk)", "cpu_plan_test")
fault("columns beyond a buffer are accepted", "src/cpu/backend.cc", "if (cols < 0 || first + cols > all)", "if (cols < 0)",
      "cpu_plan_test")
fault("rows of part of a sequence are accepted", "src/cpu/backend.cc", "rows % batch == 0", "true", "cpu_plan_test")
fault("scatter_sum adds every piece of columns to the first", "src/cpu/opaque.cc", "first = piece * kColumns,",
      "first = 0 * piece,", "cpu_plan_test")

# --- src/check: the conformance table judges
fault("small integers need not be exact", "src/check/judge.cc", "if (ref.whole.at(o.name) || o.dtype == DType::kI32)",
      "if (o.dtype == DType::kI32)", "check_test")
fault("the mean error is not judged", "src/check/judge.cc", "if (sum / n > ", "if (false && sum / n > ", "check_test")
fault("bytes around a tensor are not looked at", "src/check/data.cc", "if (memory_[e * size + b] != guard_) return false;",
      "", "check_test")
fault("runs are not compared with each other", "src/check/run.cc", "if (!same_bits(first, again, where))",
      "if (false)", "check_test")
fault("numbers of threads are not compared", "src/check/run.cc", "else if (!same_bits(first, out, where))",
      "else if (false)", "check_test")
fault("a NaN may spread", "src/check/run.cc", "if (!nan_right && std::isnan(x.data[i])) ok = false;", "ok = true;",
      "check_test")
fault("inputs may be written", "src/check/run.cc", "if (std::string stray = rig.stray_writes(values); !stray.empty())",
      "if (std::string stray = rig.stray_writes(values); false)", "check_test")
