// What the benchmark needs of a GPU: memory, copies and time on one stream. An interface, so that everything above it
// is tested on a machine without one.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "cuda/bench/harness.h"

namespace coda::cuda {

class Gpu : public Ticker {
 public:
  virtual std::string name() const = 0;        // "NVIDIA H200"
  virtual std::string pci_bus_id() const = 0;  // "0000:3B:00.0"
  virtual std::string cuda_version() const = 0;
  virtual void* stream() const = 0;  // a CUstream; all below happens on it, in order

  // Aligned to at least 256 bytes. The owner frees it by dropping the pointer; nothing enqueued may use it then.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;    // waits: `from` is free afterwards
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;  // waits
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;      // device to device, enqueued
  virtual void fill(void* to, unsigned char value, std::size_t bytes) = 0;   // enqueued
};

// A tensor of `bytes` bytes that repeats `block`.
std::shared_ptr<void> allocate_filled(Gpu& gpu, const std::vector<std::byte>& block, std::size_t bytes);

}  // namespace coda::cuda
