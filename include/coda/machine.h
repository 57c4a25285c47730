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

std::vector<Machine> known_machines();          // "h200", "h100", "cpu" (two server cores), …
Machine find_machine(const std::string& name);  // Error that lists the names

// Of one step, or of a sum of them.
struct StepCost {
  std::string name, scope;
  std::int64_t runs = 1;   // chunks, for a step in a loop: bytes, flops and seconds are of all of them
  std::int64_t bytes = 0;  // each tensor loaded or stored once, partials and finishes included; `+=` loads and stores
  std::int64_t flops = 0;  // of products (attention's too)
  double seconds = 0;      // max(bytes / bandwidth, flops / peak)
  int gemms = 0;           // 1 if the step is a GEMM (of any number of products or terms)
  int passes = 0;          // 1 if it passes over a [M,·] tensor and is neither GEMM nor attention
  int finishes = 0;        // finish values it stores
  // The same operations one by one: bare GEMMs, and a pass for every map, reduction or copy, which loads and stores its
  // tensors in memory (tiles in the program's storage dtype). One entry an operation that moves bytes.
  std::vector<StepCost> unfused;
};

struct PhaseCost {
  StepCost fused, unfused;
};

struct PlanCost {
  std::vector<StepCost> steps;
  PhaseCost forward, backward, total;  // backward: the steps from Plan::begin_backward on
  std::int64_t kept_bytes = 0;         // what the forward keeps for the backward; without a backward: the outputs
  std::int64_t caller_bytes = 0;       // buffers of the caller: inputs, outputs, in-outs
  std::int64_t temp_bytes = 0;         // the plan's arena
};

PlanCost cost(const Plan& plan, const Sizes& sizes, const Machine& machine);
std::string explain(const Plan& plan, const Sizes& sizes, const Machine& machine);       // a table to read
std::string explain_json(const Plan& plan, const Sizes& sizes, const Machine& machine);  // the same for scripts

}  // namespace coda
