// A benchmark's memory on the GPU; see tensors.h.
#include "cuda/bench/tensors.h"

#include <algorithm>
#include <cmath>

#include "coda/error.h"
#include "cuda/bench/data.h"

namespace coda::cuda {
namespace {

std::size_t bytes_of(const TensorView& v) { return static_cast<std::size_t>(v.rows * v.cols * size_of(v.dtype)); }

std::size_t bytes_of(DType dtype, std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(rows * cols * size_of(dtype));
}

}  // namespace

std::shared_ptr<void> allocate_filled(Gpu& gpu, const std::vector<std::byte>& block, std::size_t bytes) {
  std::shared_ptr<void> memory = gpu.allocate(bytes);
  if (bytes == 0) return memory;
  CODA_CHECK(!block.empty(), "a tensor of no values");
  auto* base = static_cast<std::byte*>(memory.get());
  std::size_t filled = std::min(block.size(), bytes);
  gpu.upload(base, block.data(), filled);
  for (std::size_t more = 0; filled < bytes; filled += more) {  // whole blocks, so that the pattern goes on
    more = std::min(filled, bytes - filled);
    gpu.copy(base + filled, base, more);
  }
  return memory;
}

PlanTensors::PlanTensors(Gpu& gpu, const Plan& plan, const Sizes& sizes, std::uint64_t seed) : gpu_(gpu), plan_(plan) {
  for (BufferId b = 0; b < static_cast<BufferId>(plan.buffers().size()); ++b) {
    const Buffer& buffer = plan.at(b);
    if (buffer.role == BufferRole::kTemp) continue;
    TensorView v = TensorView::matrix(nullptr, buffer.dtype, buffer.rows.eval(sizes), buffer.cols.eval(sizes));
    memory_.push_back(
        buffer.role == BufferRole::kInput
            ? allocate_filled(gpu, values_block(plan, b, sizes, seed + static_cast<std::uint64_t>(b)), bytes_of(v))
            : gpu.allocate(bytes_of(v)));
    v.data = memory_.back().get();
    bindings_[buffer.name] = v;
  }
  renew_outputs();
}

void PlanTensors::renew_outputs() {
  constexpr unsigned char kNanByte = 0xff;  // NaN in every float format when it fills an element
  for (const Buffer& b : plan_.buffers()) {
    if (b.role != BufferRole::kOutput && b.role != BufferRole::kInOut) continue;
    const TensorView& v = bindings_.at(b.name);
    gpu_.fill(v.data, b.role == BufferRole::kOutput ? kNanByte : 0, bytes_of(v));
  }
}

ReadRows PlanTensors::reader() const {
  return [this](const std::string& buffer, std::int64_t first, std::int64_t count, void* to) {
    const TensorView& v = bindings_.at(buffer);
    gpu_.download(to, static_cast<const std::byte*>(v.data) + bytes_of(v.dtype, first, v.cols),
                  bytes_of(v.dtype, count, v.cols));
  };
}

std::vector<std::byte> PlanTensors::read(const std::string& buffer) const {
  const TensorView& v = bindings_.at(buffer);
  std::vector<std::byte> all(bytes_of(v));
  gpu_.download(all.data(), v.data, all.size());
  return all;
}

BareGemms::BareGemms(Gpu& gpu, Cublas& cublas, std::vector<GemmShape> shapes, std::uint64_t seed)
    : cublas_(cublas), shapes_(std::move(shapes)) {
  for (const GemmShape& s : shapes_) {
    const float scale = 1 / std::sqrt(static_cast<float>(std::max<std::int64_t>(s.k, 1)));
    Operands o;
    o.a = allocate_filled(gpu, normal_block(s.operands, s.m * s.k, 1, seed++), bytes_of(s.operands, s.m, s.k));
    o.b = allocate_filled(gpu, normal_block(s.operands, s.n * s.k, scale, seed++), bytes_of(s.operands, s.n, s.k));
    o.c = gpu.allocate(bytes_of(s.result, s.m, s.n));
    gpu.fill(o.c.get(), 0, bytes_of(s.result, s.m, s.n));
    operands_.push_back(std::move(o));
  }
}

void BareGemms::run() {
  for (std::size_t i = 0; i < shapes_.size(); ++i)
    cublas_.gemm(shapes_[i], operands_[i].a.get(), operands_[i].b.get(), operands_[i].c.get());
}

double BareGemms::flops() const {
  double sum = 0;
  for (const GemmShape& s : shapes_) sum += s.flops();
  return sum;
}

}  // namespace coda::cuda
