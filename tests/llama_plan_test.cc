// The Llama's plans: counts of programs.md, values and gradients on the interpreter against an independent fp64 model
// (reference_llama.h), which is itself compared with finite differences.
#include "model/llama_plan.h"

#include <doctest/doctest.h>

#include <cmath>

#include "coda/error.h"
#include "coda/machine.h"
#include "llama_case.h"
#include "plan/program_library.h"
#include "plan/reference.h"

using namespace coda;
using namespace llama_case;

TEST_CASE("the reference: gradients against finite differences") {
  for (bool tied : {false, true}) {
    LlamaConfig c = small_config(tied);
    reference::LlamaNumbers n = numbers_of(c);
    Arrays p = parameters_of(c, 1);
    Batch b = batch_of(c);
    Arrays gradient = reference::llama(p, b.ids, b.targets, b.dloss, n).gradient;
    for (auto& [name, a] : p)
      for (std::size_t i = 0; i < a.data.size(); i += 1 + a.data.size() / 5) {
        constexpr double kStep = 1e-5;
        double old = a.data[i];
        a.data[i] = old + kStep;
        double above = total(reference::llama(p, b.ids, b.targets, b.dloss, n).loss, b.dloss);
        a.data[i] = old - kStep;
        double below = total(reference::llama(p, b.ids, b.targets, b.dloss, n).loss, b.dloss);
        a.data[i] = old;
        std::string where = name + " " + std::to_string(i);
        CAPTURE(where);
        CHECK(gradient.at(name).data[i] == doctest::Approx((above - below) / (2 * kStep)).epsilon(1e-6).scale(1e-3));
      }
  }
}

TEST_CASE("the whole model: losses and gradients are the reference's, added to what was there") {
  for (bool tied : {false, true}) {
    CAPTURE(tied);
    LlamaConfig c = small_config(tied);
    c.keep_mlp_operand = tied;
    Arrays p = parameters_of(c, 2);
    Batch b = batch_of(c);
    reference::LlamaRun expected = reference::llama(p, b.ids, b.targets, b.dloss, numbers_of(c));
    Sizes sizes = llama_sizes(c, kBatch, kSequence);
    Arrays out = interpret_plan(llama_forward_backward(c), plan_inputs(c, p, b, 0.5), sizes);
    check_close("loss", out.at("loss"), expected.loss, 1e-11);
    CHECK(out.at("loss").at(3, 0) == 0);
    CHECK(out.size() == expected.gradient.size() + 1);
    for (auto& [name, gradient] : expected.gradient) {
      for (double& x : gradient.data) x += 0.5;
      check_close(name, out.at("grad." + name), gradient, 1e-10);
    }
  }
}

TEST_CASE("the plan clears gradients when told to") {
  LlamaConfig c = small_config(true);
  Arrays p = parameters_of(c, 3);
  Batch b = batch_of(c);
  reference::LlamaRun expected = reference::llama(p, b.ids, b.targets, b.dloss, numbers_of(c));
  Arrays out =
      interpret_plan(llama_forward_backward(c, true), plan_inputs(c, p, b, 7), llama_sizes(c, kBatch, kSequence));
  for (const auto& [name, gradient] : expected.gradient) check_close(name, out.at("grad." + name), gradient, 1e-10);
}

TEST_CASE("the loss alone; one layer; chunks larger than the batch") {
  LlamaConfig c = small_config(false);
  c.layers = 1;
  Arrays p = parameters_of(c, 4);
  Batch b = batch_of(c);
  reference::LlamaRun expected = reference::llama(p, b.ids, b.targets, b.dloss, numbers_of(c));
  Sizes sizes = llama_sizes(c, kBatch, kSequence);
  Arrays in = p;
  add_tables(in, c);
  in["ids"] = b.ids;
  in["targets"] = b.targets;
  check_close("loss", interpret_plan(llama_forward(c), in, sizes).at("loss"), expected.loss, 1e-11);
  for (std::int64_t chunk : {0, 10, 1000}) {
    c.head_chunk = chunk;
    Arrays out = interpret_plan(llama_forward_backward(c), plan_inputs(c, p, b, 0), sizes);
    for (const auto& [name, gradient] : expected.gradient) check_close(name, out.at("grad." + name), gradient, 1e-10);
  }
}

TEST_CASE("bf16 and fp16 storage: near the exact gradients") {
  for (DType storage : {DType::kBF16, DType::kF16}) {
    LlamaConfig c = small_config(true);
    c.storage = storage;
    Arrays p = parameters_of(c, 5);
    Batch b = batch_of(c);
    for (auto& [name, a] : p)
      for (double& x : a.data) x = round_to(storage, x);
    reference::LlamaRun expected = reference::llama(p, b.ids, b.targets, b.dloss, numbers_of(c));
    Arrays out = interpret_plan(llama_forward_backward(c), plan_inputs(c, p, b, 0), llama_sizes(c, kBatch, kSequence),
                                {Rounding::kStores});
    double bound = storage == DType::kBF16 ? 0.1 : 0.0125, worst = 0;
    for (const auto& [name, gradient] : expected.gradient) {
      double error = 0, norm = 0;
      for (std::size_t i = 0; i < gradient.data.size(); ++i) {
        error += std::pow(out.at("grad." + name).data[i] - gradient.data[i], 2);
        norm += std::pow(gradient.data[i], 2);
      }
      std::string parameter = name;
      CAPTURE(parameter);
      CHECK(std::sqrt(error / norm) < bound);
      worst = std::max(worst, std::sqrt(error / norm));
    }
    CHECK(worst > 1e-5);  // it did round
  }
}

namespace {

// One layer's reference: the block with this layer's wo, norm2, …, then q, k, v with "norm1", "wq", … of the next.
struct LayerCase {
  LlamaConfig c = small_config(false);
  Sizes sizes = llama_sizes(c, kBatch, kSequence);
  reference::LlamaNumbers n = numbers_of(c);
  Arrays p;
  reference::LlamaLayer block, next;

  LayerCase() {
    for (const auto& [name, a] : parameters_of(c, 6))
      if (name.rfind("layer0.", 0) == 0) p[name.substr(7)] = a;
    block.x = programs::random("x0", kTokens, c.dim);
    block.y = programs::random("y", kTokens, c.heads * c.head_dim);
    reference::block_from({p, ""}, n, block);
    next.x = block.x2;
    reference::qkv_from({p, ""}, n, next);
  }

  static Array statistic(const Array& x, double eps) {
    Array r(x.rows, 1, 1);
    for (std::int64_t i = 0; i < x.rows; ++i) {
      double q = 0;
      for (std::int64_t j = 0; j < x.cols; ++j) q += x.at(i, j) * x.at(i, j);
      r.at(i, 0) = 1 / std::sqrt(q / static_cast<double>(x.cols) + eps);
    }
    return r;
  }
};

}  // namespace

TEST_CASE("one layer forward: every output") {
  LayerCase t;
  Arrays in = t.p;
  add_tables(in, t.c);
  in["x0"] = t.block.x;
  in["y"] = t.block.y;
  Arrays out = interpret_plan(llama_layer_forward({DType::kF32, t.c.eps}), in, t.sizes);
  Arrays expected = {
      {"x1", t.block.x1}, {"r1", LayerCase::statistic(t.block.x1, t.c.eps)}, {"g", t.block.g}, {"u", t.block.u},
      {"x2", t.block.x2}, {"r2", LayerCase::statistic(t.block.x2, t.c.eps)}, {"q", t.next.q},  {"k", t.next.k},
      {"v", t.next.v}};
  CHECK(programs::difference(out, expected, 1e-11) == "");
}

TEST_CASE("one layer backward: every output") {
  LayerCase t;
  Arrays in = t.p;
  add_tables(in, t.c);
  auto gradient = [&](const char* name, std::int64_t cols) { return in[name] = programs::random(name, kTokens, cols); };
  Array dq = gradient("dq", t.next.q.cols), dk = gradient("dk", t.next.k.cols), dv = gradient("dv", t.next.v.cols);
  Array dx = gradient("dx", t.c.dim), dy;
  Arrays grads = reference::zeros_like(t.p);
  Array dx2 = reference::add(dx, reference::qkv_reverse({t.p, ""}, t.n, t.next, dq, dk, dv, grads));
  Array dx0 = reference::block_reverse({t.p, ""}, t.n, t.block, dx2, dy, grads);
  in["y"] = t.block.y, in["x1"] = t.block.x1, in["x2"] = t.block.x2, in["g"] = t.block.g, in["u"] = t.block.u;
  in["r1"] = LayerCase::statistic(t.block.x1, t.c.eps), in["r2"] = LayerCase::statistic(t.block.x2, t.c.eps);
  in["q"] = t.next.q, in["k"] = t.next.k, in["v"] = t.next.v;
  Arrays expected{{"dx0", dx0}, {"dy", dy}};
  for (const auto& [name, a] : t.p) {
    in["grad." + name] = Array(a.rows, 1, a.width(), -2);
    expected["grad." + name] =
        reference::map(a, [&gradient = grads.at(name)](auto i, auto j) { return gradient.at(i, j) - 2; });
  }
  Arrays out = interpret_plan(llama_layer_backward({DType::kF32, t.c.eps}), in, t.sizes);
  CHECK(programs::difference(out, expected, 1e-10) == "");
  in["h1"] = reference::map(t.block.x1, [&](auto i, auto j) { return t.block.x1.at(i, j) * t.p.at("norm2").at(0, j); });
  out = interpret_plan(llama_layer_backward({DType::kF32, t.c.eps, true}), in, t.sizes);
  CHECK(programs::difference(out, expected, 1e-10) == "");
}

TEST_CASE("counts: a layer is 4 GEMMs forward and no pass, 8 backward and one pass") {
  Sizes sizes = llama_layer_sizes(2048, 1024, 2816, 16, 4);
  Machine h200 = find_machine("h200");
  PlanCost forward = cost(llama_layer_forward({}), sizes, h200), backward = cost(llama_layer_backward({}), sizes, h200);
  CHECK(forward.total.fused.gemms == 4);
  CHECK(forward.total.fused.passes == 0);
  CHECK(forward.total.fused.finishes == 2);  // r1, r2
  CHECK(forward.backward.fused.gemms == 0);
  CHECK(backward.total.fused.gemms == 8);
  CHECK(backward.total.fused.passes == 1);
  CHECK(backward.total.fused.finishes == 4);  // two s, two dγ
  CHECK(backward.forward.fused.gemms == 0);
  // Kept: x1, x2, g, u, q, k, v in 16 bits and r1, r2; y is the caller's.
  CHECK(forward.kept_bytes == 2048 * (2 * (2 * 1024 + 2 * 2816 + 1024 + 2 * 256) + 2 * 4));
  // FLOPs by hand: products of M rows.
  std::int64_t products = 1024 * 1024 + 3 * 1024 * 2816 + 1024 * (1024 + 2 * 256);
  CHECK(forward.total.fused.flops == 2 * 2048 * products);
  CHECK(backward.total.fused.flops == 4 * 2048 * products);
  CHECK(forward.total.unfused.flops == forward.total.fused.flops);
  CHECK(forward.total.unfused.gemms == 7);
  CHECK(backward.total.unfused.gemms == 14);
  CHECK(forward.total.unfused.seconds > forward.total.fused.seconds);
  CHECK(backward.total.unfused.bytes > backward.total.fused.bytes);
}

TEST_CASE("the MLP norm's second form: M·d fewer elements written, as many more kept") {
  Sizes sizes = llama_layer_sizes(2048, 1024, 2816, 16, 4);
  Machine h200 = find_machine("h200");
  LlamaShape first, second;
  second.keep_mlp_operand = true;
  std::int64_t tile = 2 * 2048 * 1024, rows = 4 * 2048;
  PlanCost f1 = cost(llama_layer_forward(first), sizes, h200), f2 = cost(llama_layer_forward(second), sizes, h200);
  CHECK(f2.total.fused.bytes == f1.total.fused.bytes);
  CHECK(f2.kept_bytes == f1.kept_bytes + tile);
  PlanCost b1 = cost(llama_layer_backward(first), sizes, h200), b2 = cost(llama_layer_backward(second), sizes, h200);
  CHECK(b2.total.fused.bytes == b1.total.fused.bytes - tile + rows);
  CHECK(b2.total.fused.gemms == 8);
}

TEST_CASE("counts of the whole model") {
  LlamaConfig c;
  c.layers = 3;
  c.head_chunk = 100;
  Plan plan = llama_forward_backward(c);
  Sizes sizes = llama_sizes(c, 4, 128);
  PlanCost total = cost(plan, sizes, find_machine("h100"));
  CHECK(total.forward.fused.gemms == 3 * 4 + 1);
  CHECK(total.forward.fused.passes == 1);  // embedding and first norm
  CHECK(total.backward.fused.gemms == 3 * 8 + 3);
  CHECK(total.backward.fused.passes == 3 + 1);  // a rotation a layer, the embedding's gradient
  CHECK(total.steps[static_cast<std::size_t>(plan.backward_start())].runs == 6);  // 512 rows by 100
  // The head's products, as often as if they were whole: once forward, three times backward.
  std::int64_t head = 2 * 512 * c.dim * c.vocab, backward_head = 0;
  for (const StepCost& s : total.steps)
    if (s.runs == 6) backward_head += s.flops;
  CHECK(backward_head == 3 * head);
  std::int64_t m = 512,
               kept = 0;  // x, x1 of each layer and the last x2; q, k, v, y, g, u; r, r1, lse; the last h, m, l
  kept += 2 * m * (3 * (2 * c.dim + 4 * 256 + 2 * c.ff) + 2 * c.dim);
  kept += 4 * m * (3 * (2 + c.heads) + 1 + 2);
  CHECK(total.kept_bytes == kept);
}

TEST_CASE("mistakes in a model's numbers") {
  auto refused = [](void (*change)(LlamaConfig&), const std::string& words) {
    LlamaConfig c = small_config(false);
    change(c);
    std::string message;
    try {
      llama_forward_backward(c);
    } catch (const Error& e) {
      message = e.what();
    }
    INFO(message);
    CHECK(message.find(words) != std::string::npos);
  };
  refused([](LlamaConfig& c) { c.layers = 0; }, "layers: 0; allowed: at least 1");
  refused([](LlamaConfig& c) { c.dim = 0; }, "dim");
  refused([](LlamaConfig& c) { c.head_dim = 5; }, "head_dim: 5; allowed: an even number");
  refused([](LlamaConfig& c) { c.kv_heads = 4; }, "kv_heads: 4 for 6 heads");
  refused([](LlamaConfig& c) { c.ignore = 3; }, "ignore");
  refused([](LlamaConfig& c) { c.eps = std::nan(""); }, "eps");
  refused([](LlamaConfig& c) { c.storage = DType::kI32; }, "storage: i32");
  refused([](LlamaConfig& c) { c.head_chunk = -1; }, "head_chunk");
  CHECK_THROWS_WITH_AS(llama_sizes(small_config(false), 1, 9), doctest::Contains("at most the context of 8"), Error);
  CHECK_THROWS_WITH_AS(llama_sizes(small_config(false), 0, 4), doctest::Contains("batch"), Error);
  CHECK_THROWS_WITH_AS(llama_layer_sizes(4, 10, 4, 3, 1), doctest::Contains("a divisor of d"), Error);
}
