// NVML, opened at run time: what clock and power a benchmark ran at. Optional: without it nothing is reported.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace coda::cuda {

struct ChipState {
  double sm_mhz = 0, watts = 0;  // medians; 0: not known
  int samples = 0;
};
ChipState median_state(const std::vector<double>& sm_mhz, const std::vector<double>& watts);

class Nvml {
 public:
  // Of the device with this PCI bus id ("0000:3B:00.0"), whatever order NVML counts in; nullptr if there is no NVML.
  static std::unique_ptr<Nvml> open(const std::string& pci_bus_id);
  virtual ~Nvml() = default;
  virtual std::string driver_version() const = 0;
  // Samples on a thread of its own, every few milliseconds, until stop().
  virtual void start() = 0;
  virtual ChipState stop() = 0;
};

}  // namespace coda::cuda
