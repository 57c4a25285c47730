// The conformance table and its driver: `coda check` and the tests share it. Every program of the library at shapes
// around every tile edge, in every storage dtype and layout, against the fp64 interpreter under the error bound of
// docs/precision.md, with what hides in kernels looked for on purpose (stale memory, wrong tiles, addressing, races).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coda/runtime.h"

namespace coda {

// How a case sets up a backend. A backend that has no such knob ignores it.
struct BackendSetup {
  int threads = 1;
  std::string isa;  // "": the default
  int tile_rows = 0, tile_cols = 0;
};
using BackendFactory = std::function<std::unique_ptr<Backend>(const BackendSetup&)>;

struct CheckOptions {
  std::string filter;             // run cases whose name contains it
  std::uint64_t seed = 1;         // of the data
  bool large = true;              // cases of several GiB, where memory allows
  std::vector<std::string> isas;  // besides the default one; every case of the edge shapes runs on each
  std::function<void(std::size_t done, std::size_t total, const std::string& name)> progress;
};

struct CheckFailure {
  std::string name;    // of the case; `--filter NAME --seed N` repeats it
  std::string reason;  // worst element with its index, what was found, what was right
};

struct CheckReport {
  std::size_t passed = 0, skipped = 0;
  std::vector<CheckFailure> failures;
  std::vector<std::string> skips;  // "name: why"
};

CheckReport run_checks(const BackendFactory& backend, const CheckOptions& options);
std::vector<std::string> check_names(const CheckOptions& options);

}  // namespace coda
