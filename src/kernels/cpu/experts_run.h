// What grouped GEMMs of experts share, whatever their operands are: how tokens are ordered and split into tasks, and where
// results go. Internal to experts and scaled_experts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/function_ref.h"
#include "kernels/cpu/expert_rows.h"
#include "kernels/cpu/experts.h"

namespace strata::cpu::detail {

inline constexpr int64_t kExpertRowStep = 96;  // rows of a that are packed or converted together

inline bool is_weight_grad(ExpertsRole role) {
  return role == ExpertsRole::kInGradWeight || role == ExpertsRole::kOutGradWeight;
}
// Whether c has one row per token, the sum over the token's pairs.
inline bool sums_slots(ExpertsRole role) {
  return role == ExpertsRole::kOut || role == ExpertsRole::kInGradInput;
}
// Columns of c, and the length of a sum (not for weight gradients).
inline int64_t columns_of(const ExpertsSpec& s) {
  return s.role == ExpertsRole::kIn || s.role == ExpertsRole::kOut ? s.outputs : s.inputs;
}
inline int64_t depth_of(const ExpertsSpec& s) {
  return s.role == ExpertsRole::kIn || s.role == ExpertsRole::kOut ? s.inputs : s.outputs;
}

struct ExpertsRun {
  const ExpertsPlan& plan;
  const ExpertsSpec& spec;
  const std::byte* a;
  const std::byte* b;
  std::byte* c;
  ExpertOrder order;
  int32_t* tasks;  // [experts + 1]: first block of rows of each expert
  std::byte* workers;

  float* a_of(int64_t worker) const { return reinterpret_cast<float*>(workers + worker * plan.worker_bytes); }
  float* b_of(int64_t worker) const {
    return reinterpret_cast<float*>(workers + worker * plan.worker_bytes + plan.b_at);
  }
  float* sums_of(int64_t worker) const {
    return reinterpret_cast<float*>(workers + worker * plan.worker_bytes + plan.sums_at);
  }
  // The same memory, for panels of bf16 dot products.
  BF16* a_pairs_of(int64_t worker) const { return reinterpret_cast<BF16*>(a_of(worker)); }
  BF16* b_pairs_of(int64_t worker) const { return reinterpret_cast<BF16*>(b_of(worker)); }
  const int32_t* begins(int64_t chunk) const { return order.begins + chunk * (spec.experts + 1); }
};

// Some or all rows of one expert times columns [col, col + cols) of its weight, written to `to`.
struct ExpertsRows {
  int64_t expert, col, cols;
  const int32_t* of_a;  // rows of a
  const int32_t* of_c;  // rows of `to`; null: consecutive
  int64_t count;
  float* to;
  int64_t stride;
  bool accumulate;
  // The weight that is probably multiplied next, prefetched in the meantime: reading it from main memory
  // takes longer than packing it.
  int64_t next_expert = -1, next_col = 0;  // -1: nothing
};

// One task's part of an expert's weight gradient, from (row, col) on.
struct ExpertsGradBlock {
  int64_t expert, row, rows, col, cols;
  float* to;  // with the stride of a row of w
};

// What a plan needs besides the sizes. `pairs` and `shape` of the plan are set.
struct ExpertsNeeds {
  int64_t depth_step = 0;  // at most this depth of one step; 0: as long as pays off
  bool packs_a = false;    // kExpertRowStep rows of a step; weight gradients always do
};
// Throws InternalError for an invalid specification.
void check_experts(const ExpertsSpec& spec);
// Fills in the rest of a plan.
void plan_experts_run(ExpertsPlan& plan, const ExpertsNeeds& needs, const hardware::DeviceSpec& device);
// Sorts the tokens. Throws InternalError on an id outside [-1, experts), and on a plan for another processor.
ExpertsRun start_experts(const ExpertsPlan& plan, const void* a, const int32_t* ids, const int32_t* offsets,
                         const void* b, void* c, void* scratch);

// All but weight gradients: calls multiply(rows, worker) for all of them, and stores zeros for pairs without an expert.
void run_expert_rows(const ExpertsRun& run, const int32_t* ids,
                     FunctionRef<void(const ExpertsRows&, int64_t)> multiply);
// Weight gradients: calls multiply(block, worker) for all blocks of experts that have pairs, and stores zeros for others
// unless c accumulates.
void run_expert_grads(const ExpertsRun& run, FunctionRef<void(const ExpertsGradBlock&, int64_t)> multiply);

}  // namespace strata::cpu::detail
