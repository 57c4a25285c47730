// NumPy's .npy files, for `coda run`: one array of 1 to 3 dimensions in, any float or integer type; float32 or int32
// out.
#pragma once

#include <string>

#include "coda/interpret.h"

namespace coda::cli {

// Error for anything that is no readable .npy array: what was found, what is allowed.
Array read_npy(const std::string& path);
// [rows, cols] (groups flattened). `integers`: int32, else float32. The file is whole or not there.
void write_npy(const std::string& path, const Array& a, bool integers);

}  // namespace coda::cli
