// Clock and power; see nvml.h. NVML's C interface is declared here as its manual gives it.
#include "cuda/bench/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

namespace coda::cuda {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

using Handle = void*;
constexpr int kSuccess = 0, kClockSm = 1;

struct Functions {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_bus)(const char*, Handle*) = nullptr;
  int (*clock)(Handle, int, unsigned*) = nullptr;
  int (*power)(Handle, unsigned*) = nullptr;
  int (*driver)(char*, unsigned) = nullptr;

  bool load(void* library) {
    auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return find(init, "nvmlInit_v2") && find(shutdown, "nvmlShutdown") &&
           find(by_bus, "nvmlDeviceGetHandleByPciBusId_v2") && find(clock, "nvmlDeviceGetClockInfo") &&
           find(power, "nvmlDeviceGetPowerUsage") && find(driver, "nvmlSystemGetDriverVersion");
  }
};

class Sampler : public Nvml {
 public:
  Sampler(const Functions& f, Handle device) : f_(f), device_(device) {}
  ~Sampler() override {
    stop();
    f_.shutdown();
  }

  std::string driver_version() const override {
    std::array<char, 96> text{};
    return f_.driver(text.data(), static_cast<unsigned>(text.size())) == kSuccess ? text.data() : "";
  }

  void start() override {
    stop();
    running_ = true;
    thread_ = std::thread([this] {
      while (running_) {
        unsigned mhz = 0, milliwatts = 0;
        if (f_.clock(device_, kClockSm, &mhz) == kSuccess) sm_mhz_.push_back(mhz);
        if (f_.power(device_, &milliwatts) == kSuccess) watts_.push_back(milliwatts / 1e3);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
  }

  ChipState stop() override {
    if (!thread_.joinable()) return {};
    running_ = false;
    thread_.join();
    ChipState state = median_state(sm_mhz_, watts_);
    sm_mhz_.clear();
    watts_.clear();
    return state;
  }

 private:
  Functions f_;
  Handle device_;
  std::atomic<bool> running_ = false;
  std::thread thread_;
  std::vector<double> sm_mhz_, watts_;  // the thread's, until it is joined
};

}  // namespace

ChipState median_state(const std::vector<double>& sm_mhz, const std::vector<double>& watts) {
  return {median(sm_mhz), median(watts), static_cast<int>(std::max(sm_mhz.size(), watts.size()))};
}

std::unique_ptr<Nvml> Nvml::open(const std::string& pci_bus_id) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  Functions f;
  if (library == nullptr || !f.load(library) || f.init() != kSuccess) return nullptr;
  Handle device = nullptr;
  if (f.by_bus(pci_bus_id.c_str(), &device) != kSuccess) {
    f.shutdown();
    return nullptr;
  }
  return std::make_unique<Sampler>(f, device);
}

}  // namespace coda::cuda
