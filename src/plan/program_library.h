// The programs of programs/*.coda, embedded into the library when it is built. Called by whoever assembles plans, by
// the conformance table and the command line. Thread-safe; a program is parsed once and stays.
#pragma once

#include <string>
#include <vector>

#include "coda/program.h"

namespace coda {

std::vector<std::string> library_names();                  // sorted
const std::string& library_text(const std::string& name);  // Error with near names if there is none

// The program with its bf16 tensors declared as `storage` (f32, bf16 or f16), and the outputs of `accumulated`
// (f32 ones) adding to what they hold (`+=`) instead of replacing it.
const Program& library_program(const std::string& name, DType storage,
                               const std::vector<std::string>& accumulated = {});

}  // namespace coda
