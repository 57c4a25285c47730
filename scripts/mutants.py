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
fault("a range of rows starts one block late", "src/base/tensor.cc", "first / row_block * row_outer",
      "(first / row_block + 1) * row_outer", "base_test")
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
