// How the kernels of experts' routers and rows are launched, as launch.h has them for the others. `part` is a kernel's
// name without its type.
#pragma once

#include <string>

#include "kernels/gpu/args_experts.h"
#include "kernels/gpu/launch.h"

namespace strata::gpu {

// --- Grouped GEMMs of fp32, and of bf16 in rows of any width; they take ExpertsArgs. `in`: of activations and weights.
KernelLaunch expert_product(GemmLayout layout, DType in, DType out, const ExpertsPlan& plan, int64_t n);
KernelLaunch expert_product_weights(DType in, int64_t experts, int64_t m, int64_t n);

// --- A warp per token: "route", "route_gradient", "router_scores", "scores_gradient", "two_level",
// "two_level_gradient".
KernelLaunch router(const std::string& part, int64_t tokens);
KernelLaunch jitter(int64_t rows, int64_t columns);
KernelLaunch sample_places(int64_t rows);

// --- What balances experts
struct RouterSumsPlan {
  KernelLaunch parts, sum;
  int64_t part_count = 1;  // of a group
  int64_t parts_bytes = 0;
};
RouterSumsPlan router_sums(int64_t groups, int64_t rows, int64_t experts);
KernelLaunch router_sums_gradient(int64_t tokens);
KernelLaunch balance_loss();
KernelLaunch balance_loss_gradient(int64_t groups);
struct RouterZPlan {
  KernelLaunch parts, sum;
  int64_t part_count = 1;
};
RouterZPlan router_z_loss(int64_t tokens);
KernelLaunch router_z_gradient(int64_t tokens);
KernelLaunch router_bias_update();

// --- Experts that choose, and soft mixtures
KernelLaunch expert_choice(int64_t groups, int64_t experts);
KernelLaunch expert_choice_gradient(int64_t slots);
// "gather_rows" and "scatter_rows": `rows` of the result.
KernelLaunch group_rows(const std::string& part, DType dtype, int64_t rows);
KernelLaunch soft_weights(bool of_tokens, const SoftArgs& args);
KernelLaunch soft_through(bool of_tokens, const SoftArgs& args);
KernelLaunch soft_mix(bool to_slots, DType dtype, const SoftArgs& args);
KernelLaunch soft_products(DType dtype, const SoftArgs& args);
KernelLaunch soft_slots(const SoftArgs& args);

// --- Rows of token–expert pairs
KernelLaunch scale_rows(DType dtype, int64_t rows, int64_t columns);
KernelLaunch expert_bias(DType dtype, int64_t rows);
KernelLaunch expert_bias_gradient(DType dtype, int64_t experts, int64_t columns);
KernelLaunch expert_bias_weights_gradient(DType dtype, int64_t slots);
KernelLaunch limit_experts(int64_t slots);
KernelLaunch weights_of_kept(int64_t slots);
KernelLaunch expert_counts(int64_t experts);
KernelLaunch running_counts(int64_t experts);

// --- Around experts
KernelLaunch clamped_gated(DType dtype, int64_t rows, int64_t width);
KernelLaunch temper(DType dtype, int64_t rows);
KernelLaunch chunk_begins(int64_t n);
// n: elements of the part; of the gradient, of the whole.
KernelLaunch take_part(bool gradient, int64_t n);

}  // namespace strata::gpu
