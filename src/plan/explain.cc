// A plan's costs as a table to read and as JSON; see include/coda/machine.h.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "coda/machine.h"

namespace coda {
namespace {

std::string bytes_text(std::int64_t bytes) {
  double b = static_cast<double>(bytes);
  return b < 1048576 ? fmt::format("{:.1f} KiB", b / 1024) : fmt::format("{:.1f} MiB", b / 1048576);
}

std::string sizes_text(const Plan& plan, const Sizes& sizes) {
  std::string text;
  for (const std::string& s : plan.free_sizes())
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", s, sizes.at(s));
  return text;
}

std::string counts(const StepCost& c) {
  return fmt::format("{} GEMM{}, {} pass{}, {} finish{}, {}, {:.1f} GFLOP, {:.1f} µs", c.gemms, c.gemms == 1 ? "" : "s",
                     c.passes, c.passes == 1 ? "" : "es", c.finishes, c.finishes == 1 ? "" : "es", bytes_text(c.bytes),
                     static_cast<double>(c.flops) * 1e-9, c.seconds * 1e6);
}

StepCost sum_unfused(const StepCost& c) {
  if (c.unfused.empty()) return c;
  StepCost sum;
  for (const StepCost& op : c.unfused) {
    sum.bytes += op.bytes;
    sum.seconds += op.seconds;
    sum.gemms += op.gemms;
    sum.passes += op.passes;
  }
  return sum;
}

std::string phase_lines(const char* called, const PhaseCost& p) {
  std::string text =
      fmt::format("{:<9} {}\n{:<9} unfused: {} GEMMs, {} passes, {}, {:.1f} µs", called, counts(p.fused), "",
                  p.unfused.gemms, p.unfused.passes, bytes_text(p.unfused.bytes), p.unfused.seconds * 1e6);
  if (p.fused.seconds > 0) text += fmt::format(" ({:.2f} times as long)", p.unfused.seconds / p.fused.seconds);
  return text + "\n";
}

nlohmann::ordered_json numbers(const StepCost& c) {
  return {{"gemms", c.gemms}, {"passes", c.passes}, {"finishes", c.finishes},
          {"bytes", c.bytes}, {"flops", c.flops},   {"seconds", c.seconds}};
}

nlohmann::ordered_json phase_json(const PhaseCost& p) {
  nlohmann::ordered_json json = numbers(p.fused);
  json["unfused"] = numbers(p.unfused);
  json["unfused"].erase("finishes");
  return json;
}

}  // namespace

std::string explain(const Plan& plan, const Sizes& sizes, const Machine& machine) {
  PlanCost c = cost(plan, sizes, machine);
  std::string text = fmt::format("plan {} on {} ({:.4g} GB/s, {:.4g} TFLOP/s in 16 bits, {:.4g} in f32)\n{}\n\n",
                                 plan.name(), machine.name, machine.bytes_per_second * 1e-9, machine.flops_16 * 1e-12,
                                 machine.flops_f32 * 1e-12, sizes_text(plan, sizes));
  text += fmt::format("{:>4}  {:<24} {:<40} {:>5} {:>4} {:>12} {:>10} {:>10}  {:>14} {:>12} {:>10}\n", "step", "scope",
                      "program", "runs", "kind", "bytes", "GFLOP", "µs", "unfused ops", "bytes", "µs");
  for (std::size_t i = 0; i < c.steps.size(); ++i) {
    const StepCost& s = c.steps[i];
    if (static_cast<int>(i) == plan.backward_start() && i > 0) text += "      backward\n";
    StepCost u = sum_unfused(s);
    std::string ops = s.unfused.empty() ? "" : fmt::format("{} + {}", u.gemms, u.passes);
    text += fmt::format("{:>4}  {:<24} {:<40} {:>5} {:>4} {:>12} {:>10.1f} {:>10.1f}  {:>14} {:>12} {:>10.1f}\n", i,
                        s.scope, s.name, s.runs,
                        s.gemms > 0    ? "gemm"
                        : s.passes > 0 ? "pass"
                                       : "",
                        bytes_text(s.bytes), static_cast<double>(s.flops) * 1e-9, s.seconds * 1e6, ops,
                        bytes_text(u.bytes), u.seconds * 1e6);
  }
  text += "(unfused ops: GEMMs + passes, each a kernel of its own)\n\n";
  bool has_both = plan.backward_start() > 0 && plan.backward_start() < static_cast<int>(c.steps.size());
  if (has_both) text += phase_lines("forward", c.forward) + phase_lines("backward", c.backward);
  text += phase_lines("total", c.total);
  text += fmt::format("memory    {} of the caller, {} kept {}, {} of temporaries\n", bytes_text(c.caller_bytes),
                      bytes_text(c.kept_bytes), has_both ? "for the backward" : "(outputs)", bytes_text(c.temp_bytes));
  return text;
}

std::string explain_json(const Plan& plan, const Sizes& sizes, const Machine& machine) {
  PlanCost c = cost(plan, sizes, machine);
  nlohmann::ordered_json json{{"plan", plan.name()}};
  json["machine"] = {{"name", machine.name},
                     {"bytes_per_second", machine.bytes_per_second},
                     {"flops_f32", machine.flops_f32},
                     {"flops_16", machine.flops_16}};
  for (const std::string& s : plan.free_sizes()) json["sizes"][s] = sizes.at(s);
  json.update(phase_json(c.total));
  json["forward"] = phase_json(c.forward);
  json["backward"] = phase_json(c.backward);
  json["caller_bytes"] = c.caller_bytes;
  json["kept_bytes"] = c.kept_bytes;
  json["temp_bytes"] = c.temp_bytes;
  json["steps"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < c.steps.size(); ++i) {
    const StepCost& s = c.steps[i];
    nlohmann::ordered_json step{{"step", i},
                                {"scope", s.scope},
                                {"name", s.name},
                                {"runs", s.runs},
                                {"backward", static_cast<int>(i) >= plan.backward_start()}};
    step.update(numbers(s));
    step["unfused"] = nlohmann::ordered_json::array();
    for (const StepCost& op : s.unfused)
      step["unfused"].push_back({{"name", op.name},
                                 {"gemms", op.gemms},
                                 {"passes", op.passes},
                                 {"bytes", op.bytes},
                                 {"flops", op.flops},
                                 {"seconds", op.seconds}});
    json["steps"].push_back(std::move(step));
  }
  return json.dump(2);
}

}  // namespace coda
