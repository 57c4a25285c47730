// Machine: what the cost model knows of a device, and what a plan costs on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/plan.h"

namespace coda {

struct Machine {
  std::string name;
  double bytes_per_second = 0;  // main memory
  double flops_f32 = 0;         // multiply-adds count two
  double flops_16 = 0;          // bf16 and fp16 operands, fp32 accumulation
};

std::vector<Machine> known_machines();           // "h200", "h100", "cpu" (a generic server core pair), …
Machine find_machine(const std::string& name);   // Error that lists the names

// Of one step, or of the operations of a program run one by one ("unfused": each reads and writes its tensors in memory).
struct StepCost {
  std::string name, scope;
  std::int64_t bytes = 0;  // each tensor loaded or stored once, partials and finishes included
  std::int64_t flops = 0;  // GEMM FLOPs
  double seconds = 0;      // max(bytes / bandwidth, flops / peak)
  int gemms = 0;           // 1 if the step is a GEMM (of any number of products or terms)
  int finishes = 0;        // finish values it stores
  bool is_pass = false;    // a pass over a [M,·] tensor that is neither GEMM nor attention
  std::vector<StepCost> unfused;
};

struct PlanCost {
  std::vector<StepCost> steps;
  StepCost total, unfused_total;
  std::int64_t kept_bytes = 0, temp_bytes = 0;  // buffers the caller keeps; the plan's arena
};

PlanCost cost(const Plan& plan, const Sizes& sizes, const Machine& machine);
std::string explain(const Plan& plan, const Sizes& sizes, const Machine& machine);       // a table to read
std::string explain_json(const Plan& plan, const Sizes& sizes, const Machine& machine);  // the same for scripts

}  // namespace coda
