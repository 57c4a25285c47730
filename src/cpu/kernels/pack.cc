// See pack.h. Three roads: unit stride along K (any addressing of rows: a pointer each), unit stride along rows or
// columns (whole panels inside one block of the view), and otherwise an element-wise gather into a small K-major buffer
// that then takes the first road.
#include "cpu/kernels/pack.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "coda/error.h"

namespace coda::cpu {
namespace {

constexpr int kMaxLanes = 64;

// One axis of a view: index → offset in elements.
struct Axis {
  std::int64_t block, stride, outer;
  std::int64_t offset(std::int64_t i) const { return i / block * outer + i % block * stride; }
  std::int64_t run(std::int64_t i) const { return block - i % block; }  // indices from i on with one stride
};

// Do the runs of `r` begin at multiples of `unit` from its first index?
bool runs_fit(const Axis& axis, Range r, int unit) {
  std::int64_t first_run = axis.run(r.first);
  return first_run >= r.count || (first_run % unit == 0 && axis.block % unit == 0);
}

class Job {
 public:
  Job(const KernelSet& set, const Packer& packer, const GemmOperand& operand, Range mn, Range k, void* out)
      : packer_(packer),
        base_(static_cast<const char*>(operand.view.data)),
        size_(size_of(operand.view.dtype)),
        mn_range_(mn),
        k_range_(k),
        out_(static_cast<char*>(out)),
        k_bytes_(std::int64_t{packer.lanes} * set.element_bytes),
        panel_bytes_(k_bytes_ * round_up(k.count, set.k_unit)),
        k_unit_(set.k_unit) {
    const TensorView& v = operand.view;
    mn_ = {v.row_block, v.row_stride, v.row_outer};
    k_ = {v.col_block, v.col_stride, v.col_outer};
    if (operand.k_is_rows) std::swap(mn_, k_);
  }

  void run() const {
    bool k_fits = runs_fit(k_, k_range_, k_unit_);
    bool k_major = k_fits && k_.stride == 1;
    bool mn_major = k_fits && mn_.stride == 1;
    for (std::int64_t done = 0; done < mn_range_.count;) {
      std::int64_t left = mn_range_.count - done;
      std::int64_t panel = std::min<std::int64_t>(left, packer_.lanes);
      std::int64_t together = std::min(left, mn_.run(mn_range_.first + done));
      if (together < left) together -= together % packer_.lanes;
      if (k_major) {
        pack_k_major(done, panel);
      } else if (mn_major && together > 0) {
        pack_mn_major(done, together);
        panel = together;
      } else {
        gather(done, panel);
      }
      done += panel;
    }
  }

 private:
  const char* at(std::int64_t mn, std::int64_t k) const {
    return base_ + size_ * (mn_.offset(mn_range_.first + mn) + k_.offset(k_range_.first + k));
  }
  char* panel_of(std::int64_t mn) const { return out_ + mn / packer_.lanes * panel_bytes_; }

  template <class F>
  void for_each_k_run(F&& f) const {
    for (std::int64_t k = 0; k < k_range_.count;) {
      std::int64_t length = std::min(k_range_.count - k, k_.run(k_range_.first + k));
      f(k, length);
      k += length;
    }
  }

  void pack_k_major(std::int64_t mn, std::int64_t count) const {
    for_each_k_run([&](std::int64_t k, std::int64_t length) {
      std::array<const void*, kMaxLanes> sources;
      for (std::int64_t i = 0; i < count; ++i) sources[i] = at(mn + i, k);
      packer_.from_k_major(sources.data(), static_cast<int>(count), length, panel_of(mn) + k * k_bytes_);
    });
  }

  void pack_mn_major(std::int64_t mn, std::int64_t count) const {
    for_each_k_run([&](std::int64_t k, std::int64_t length) {
      packer_.from_mn_major(at(mn, k), k_.stride, length, count, panel_of(mn) + k * k_bytes_, panel_bytes_);
    });
  }

  void gather(std::int64_t mn, std::int64_t count) const {
    constexpr std::int64_t kChunk = 64;  // a multiple of every k_unit
    alignas(64) std::array<char, kMaxLanes * kChunk * 4> buffer;
    std::array<const void*, kMaxLanes> sources;
    for (std::int64_t k = 0; k < k_range_.count; k += kChunk) {
      std::int64_t length = std::min(kChunk, k_range_.count - k);
      std::array<std::int64_t, kChunk> k_bytes;
      for (std::int64_t j = 0; j < length; ++j) k_bytes[j] = size_ * k_.offset(k_range_.first + k + j);
      for (std::int64_t i = 0; i < count; ++i) {
        const char* source = base_ + size_ * mn_.offset(mn_range_.first + mn + i);
        char* row = buffer.data() + i * kChunk * size_;
        sources[i] = row;
        if (size_ == 2)
          for (std::int64_t j = 0; j < length; ++j) std::memcpy(row + 2 * j, source + k_bytes[j], 2);
        else
          for (std::int64_t j = 0; j < length; ++j) std::memcpy(row + 4 * j, source + k_bytes[j], 4);
      }
      packer_.from_k_major(sources.data(), static_cast<int>(count), length, panel_of(mn) + k * k_bytes_);
    }
  }

  const Packer& packer_;
  const char* base_;
  std::int64_t size_;
  Range mn_range_, k_range_;
  char* out_;
  std::int64_t k_bytes_;  // of all lanes of a panel for one k
  std::int64_t panel_bytes_;
  int k_unit_;
  Axis mn_{}, k_{};
};

}  // namespace

void pack(const KernelSet& set, const Packer& packer, const GemmOperand& operand, Range mn, Range k, void* out) {
  CODA_CHECK(k.count <= set.k_block, "a K block longer than the packed layout allows");
  CODA_CHECK(packer.lanes <= kMaxLanes, "a panel wider than the packing buffers");
  if (mn.count > 0 && k.count > 0) Job(set, packer, operand, mn, k, out).run();
}

}  // namespace coda::cpu
