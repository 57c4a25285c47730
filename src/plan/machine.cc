// The machines that the cost model knows; see include/coda/machine.h. Peaks are what dense products reach, not what a
// data sheet multiplies out, so that a roofline is a bound a kernel can be held against.
#include "coda/machine.h"

#include <fmt/format.h>

#include "coda/error.h"

namespace coda {

std::vector<Machine> known_machines() {
  return {
      {"h200", 4.8e12, 60e12, 790e12},   // 16-bit: sustained by the best kernels on large products; data sheet 989
      {"h100", 3.35e12, 60e12, 790e12},  // the same chip with slower memory
      {"cpu", 30e9, 360e9, 360e9},       // two server cores with AVX-512; 16-bit is widened to fp32
      {"cpu-amx", 30e9, 360e9, 2800e9},  // the same with bf16 tiles
  };
}

Machine find_machine(const std::string& name) {
  std::string names;
  for (const Machine& m : known_machines()) {
    if (m.name == name) return m;
    names += (names.empty() ? "" : ", ") + m.name;
  }
  throw Error({"machine", "'" + name + "'", names, ""});
}

}  // namespace coda
