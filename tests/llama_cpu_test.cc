// The whole Llama on the CPU backend: losses and every gradient against an independent, unfused fp64 model.
#include <doctest/doctest.h>

#include <cmath>

#include "coda/cpu.h"
#include "llama_case.h"
#include "plan/reference.h"

using namespace coda;
using namespace llama_case;

namespace {

// A plan's tensors in memory, filled from arrays by name.
class Memory {
 public:
  Memory(const Plan& plan, const Sizes& sizes, const Arrays& values) {
    for (const Buffer& b : plan.buffers()) {
      if (b.role == BufferRole::kTemp) continue;
      std::int64_t rows = b.rows.eval(sizes), cols = b.cols.eval(sizes);
      std::vector<float>& data = data_[b.name];
      data.resize(static_cast<std::size_t>(rows * cols));  // 4 bytes an element are enough for every dtype
      bindings_[b.name] = TensorView::matrix(data.data(), b.dtype, rows, cols);
      for (std::int64_t i = 0; i < rows * cols; ++i) {
        double x = b.role == BufferRole::kOutput ? std::nan("") : values.at(b.name).data[static_cast<std::size_t>(i)];
        if (b.dtype == DType::kI32)
          reinterpret_cast<std::int32_t*>(data.data())[i] = static_cast<std::int32_t>(x);
        else
          store_element(data.data(), i, b.dtype, static_cast<float>(x));
      }
    }
  }
  const Bindings& bindings() const { return bindings_; }
  double at(const std::string& name, std::size_t i) const {
    const TensorView& v = bindings_.at(name);
    return static_cast<double>(load_element(v.data, static_cast<std::int64_t>(i), v.dtype));
  }

 private:
  std::map<std::string, std::vector<float>> data_;
  Bindings bindings_;
};

double relative_error(const Array& found, const Array& exact) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < exact.data.size(); ++i) {
    error += std::pow(found.data[i] - exact.data[i], 2);
    norm += std::pow(exact.data[i], 2);
  }
  return std::sqrt(error / norm);
}

}  // namespace

TEST_CASE("the whole model on the CPU") {
  for (DType storage : {DType::kF32, DType::kBF16, DType::kF16})
    for (bool tied : {false, true}) {
      LlamaConfig c = small_config(tied);
      c.storage = storage;
      Arrays p = parameters_of(c, 7);
      for (auto& [name, a] : p)
        for (double& x : a.data) x = round_to(storage, x);
      Batch b = batch_of(c);
      reference::LlamaRun expected = reference::llama(p, b.ids, b.targets, b.dloss, numbers_of(c));
      Plan plan = llama_forward_backward(c);
      Sizes sizes = llama_sizes(c, kBatch, kSequence);
      Arrays in = plan_inputs(c, p, b, 0);
      // What the roundings at stores alone cost: the backend may add the order of its sums, no more.
      Arrays rounded = interpret_plan(plan, in, sizes, {Rounding::kStores});
      CpuOptions options;
      options.threads = 2;
      options.tile_rows = 4;
      std::unique_ptr<Backend> cpu = make_cpu_backend(options);
      std::unique_ptr<Executable> executable = cpu->prepare(plan, sizes);
      Memory memory(plan, sizes, in);
      executable->poison();
      executable->run(memory.bindings());
      auto check = [&](const std::string& buffer, const Array& exact) {
        Array found = exact;
        for (std::size_t i = 0; i < found.data.size(); ++i) found.data[i] = memory.at(buffer, i);
        CAPTURE(std::string(name(storage)));
        CAPTURE(tied);
        CAPTURE(buffer);
        CHECK(relative_error(found, exact) < 1.5 * relative_error(rounded.at(buffer), exact) + 1e-5);
      };
      check("loss", expected.loss);
      for (const auto& [name, gradient] : expected.gradient) check("grad." + name, gradient);
    }
}
