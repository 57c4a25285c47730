// The reference of every program in programs/, by name. A program without one fails tests/programs_test.cc.
#pragma once

#include <map>
#include <string>

#include "reference_dropout.h"
#include "reference_linear.h"
#include "reference_loss.h"
#include "reference_norm.h"
#include "reference_rope.h"

namespace reference {

using Function = Arrays (*)(const In&);

inline const std::map<std::string, Function>& all() {
  static const std::map<std::string, Function> kAll = {
      // Gated linear units and biases.
      {"swiglu", gated<kSilu>},
      {"geglu", gated<kGelu>},
      {"geglu_tanh", gated<kGeluTanh>},
      {"reglu", gated<kRelu>},
      {"rmsnorm_swiglu", rmsnorm_swiglu},
      {"swiglu_pairs", swiglu_pairs},
      {"swiglu_halves", swiglu_halves},
      {"swiglu_backward", gated_backward<kSilu>},
      {"geglu_backward", gated_backward<kGelu>},
      {"geglu_tanh_backward", gated_backward<kGeluTanh>},
      {"reglu_backward", gated_backward<kRelu>},
      {"swiglu_backward_scaled", swiglu_backward_scaled},
      {"swiglu_pairs_backward", swiglu_pairs_backward},
      {"bias", bias},
      {"bias_gelu", bias_activation<kGelu>},
      {"bias_gelu_tanh", bias_activation<kGeluTanh>},
      {"bias_silu", bias_activation<kSilu>},
      {"bias_relu", bias_activation<kRelu>},
      {"bias_backward", bias_backward},
      {"bias_gelu_backward", bias_activation_backward<kGelu>},
      {"bias_gelu_tanh_backward", bias_activation_backward<kGeluTanh>},
      {"bias_silu_backward", bias_activation_backward<kSilu>},
      {"bias_relu_backward", bias_activation_backward<kRelu>},
      {"softcap", softcap},
      // The residual stream, segments, gradients of weights and data.
      {"residual", residual},
      {"bias_residual", bias_residual},
      {"residual_concat", residual_concat},
      {"qkv_concat", qkv_concat},
      {"bias_qkv_split", bias_qkv_split},
      {"data_gradient", data_gradient_plain},
      {"weight_gradient", weight_gradient_into},
      {"weight_gradient_store", weight_gradient_store},
      {"weight_gradient_glu", weight_gradient_glu},
      {"weight_gradient_qkv", weight_gradient_qkv},
      {"lora_down", lora_down},
      {"lora_linear", lora_linear},
      {"lora_data_gradient", lora_data_gradient},
      // RMSNorm.
      {"residual_rmsnorm_partial", residual_rmsnorm_partial<0>},
      {"residual_rmsnorm_offset_partial", residual_rmsnorm_partial<1>},
      {"rmsnorm_partial", rmsnorm_partial},
      {"rmsnorm_statistic", rmsnorm_statistic},
      {"rmsnorm_apply", rmsnorm_apply<0>},
      {"rmsnorm_offset_apply", rmsnorm_apply<1>},
      {"rmsnorm_linear", rmsnorm_linear},
      {"linear_rmsnorm_statistic", linear_rmsnorm_statistic},
      {"postnorm_residual_rmsnorm_partial", postnorm_residual_rmsnorm_partial},
      {"residual_rmsnorm_backward", residual_rmsnorm_backward<0>},
      {"residual_rmsnorm_backward_glu", residual_rmsnorm_backward<0>},
      {"residual_rmsnorm_backward_qkv", residual_rmsnorm_backward<0>},
      {"residual_rmsnorm_offset_backward", residual_rmsnorm_backward<1>},
      {"rmsnorm_backward_head", residual_rmsnorm_backward<0>},
      {"residual_rmsnorm_backward_scaled", residual_rmsnorm_backward_scaled},
      {"residual_rmsnorm_backward_glu_scaled", residual_rmsnorm_backward_scaled},
      {"rmsnorm_row_sum", rmsnorm_row_sum},
      {"rmsnorm_backward", rmsnorm_backward},
      {"postnorm_row_sum", postnorm_row_sum},
      {"postnorm_backward", postnorm_backward},
      {"embedding_rmsnorm_partial", embedding_rmsnorm_partial},
      // LayerNorm and dropout.
      {"residual_layernorm_partial", residual_layernorm_partial},
      {"layernorm_partial", layernorm_partial},
      {"layernorm_apply", layernorm_apply},
      {"layernorm_linear", layernorm_linear},
      {"layernorm_linear_gelu", layernorm_linear_activation<kGelu>},
      {"layernorm_linear_gelu_tanh", layernorm_linear_activation<kGeluTanh>},
      {"layernorm_linear_gelu_backward", layernorm_linear_activation_backward<kGelu>},
      {"layernorm_linear_gelu_tanh_backward", layernorm_linear_activation_backward<kGeluTanh>},
      {"layernorm_weight_scale", layernorm_weight_scale},
      {"layernorm_weight_shift", layernorm_weight_shift},
      {"layernorm_row_sums", layernorm_row_sums},
      {"layernorm_row_sums_alone", layernorm_row_sums_alone},
      {"layernorm_backward", layernorm_backward},
      {"residual_layernorm_backward", residual_layernorm_backward},
      {"residual_layernorm_backward_qkv", residual_layernorm_backward},
      {"embedding_layernorm_partial", embedding_layernorm_partial},
      {"dropout_residual", dropout_residual},
      {"dropout_residual_backward", dropout_residual_backward},
      {"dropout_residual_layernorm_partial", dropout_residual_layernorm_partial},
      {"dropout_residual_layernorm_backward", dropout_residual_layernorm_backward},
      // Rotary embeddings.
      {"rope", rope<Pairing::kHalves>},
      {"rope_partial", rope<Pairing::kHalves>},
      {"rope_frequencies", rope<Pairing::kHalves>},
      {"rmsnorm_rope", rope<Pairing::kHalves>},
      {"rmsnorm_rope_packed", rope<Pairing::kHalves>},
      {"rope_pairs", rope<Pairing::kAdjacent>},
      {"rope_pairs_partial", rope<Pairing::kAdjacent>},
      {"rope_table", rope_table},
      {"rope_backward", rope_backward<Pairing::kHalves>},
      {"rope_partial_backward", rope_backward<Pairing::kHalves>},
      {"rope_pairs_backward", rope_backward<Pairing::kAdjacent>},
      {"rope_pairs_partial_backward", rope_backward<Pairing::kAdjacent>},
      {"qknorm_rope", qknorm_rope},
      {"qknorm_rope_gqa", qknorm_rope_gqa},
      {"qknorm_rope_backward", qknorm_rope_backward},
      // Losses and heads.
      {"cross_entropy", cross_entropy},
      {"cross_entropy_logits", cross_entropy_logits},
      {"cross_entropy_mean", cross_entropy_mean},
      {"cross_entropy_smoothing", cross_entropy},
      {"cross_entropy_z_loss", cross_entropy},
      {"cross_entropy_softcap", cross_entropy},
      {"cross_entropy_scale", cross_entropy},
      {"cross_entropy_bias", cross_entropy},
      {"cross_entropy_weighted", cross_entropy},
      {"rmsnorm_cross_entropy", cross_entropy},
      {"rmsnorm_cross_entropy_logits", cross_entropy_logits},
      {"rmsnorm_cross_entropy_full", cross_entropy},
      {"linear_cross_entropy_backward", cross_entropy_backward},
      {"linear_cross_entropy_backward_smoothing", cross_entropy_backward},
      {"linear_cross_entropy_backward_z_loss", cross_entropy_backward},
      {"linear_cross_entropy_backward_softcap", cross_entropy_backward},
      {"linear_cross_entropy_backward_scale", cross_entropy_backward},
      {"linear_cross_entropy_backward_bias", cross_entropy_backward},
      {"rmsnorm_linear_cross_entropy_backward", cross_entropy_backward},
      {"rmsnorm_linear_cross_entropy_backward_full", cross_entropy_backward},
      {"cross_entropy_backward_stored", cross_entropy_backward_stored},
      {"rmsnorm_argmax", rmsnorm_argmax},
      {"rmsnorm_entropy", rmsnorm_entropy},
  };
  return kAll;
}

// One program's reference on inputs by name.
inline Arrays evaluate(const std::string& name, const Arrays& inputs, const coda::Sizes& sizes = {}) {
  return all().at(name)(In{inputs, sizes});
}

}  // namespace reference
