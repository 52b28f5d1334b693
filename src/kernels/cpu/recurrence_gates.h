// Decays and step sizes of linear recurrences (ops/recurrence_gates). Projections have the given dtype (f32,
// bf16 or fp16), all else is fp32. Results are bit-identical for any number of threads.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/recurrence_kind.h"

namespace strata::cpu {

struct RecurrenceGatesShape {
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t width = 0;  // of a row of `a`: a multiple of heads; heads for state space
  RecurrenceKind kind = RecurrenceKind::kDelta;
  float beta_scale = 1;           // delta
  float least = 0, greatest = 0;  // state space: bounds of a step
  DType dtype = DType::kF32;
};
struct RecurrenceGatesWeights {
  const float* a_log;    // [heads]
  const float* dt_bias;  // [width]
};

// g[rows, width] and beta[rows, heads] from a[rows, width] and, delta only, b[rows, heads]. Scratch:
// recurrence_gates_scratch_bytes, uninitialised.
int64_t recurrence_gates_scratch_bytes(const RecurrenceGatesShape& shape);
void recurrence_gates_forward(const RecurrenceGatesShape& shape, float* g, float* beta, const void* a,
                              const void* b, const RecurrenceGatesWeights& weights, void* scratch);
// da and db, the gradients of a and b, which they may alias. Scratch as above.
void recurrence_gates_backward_input(const RecurrenceGatesShape& shape, void* da, void* db, const float* dg,
                                     const float* dbeta, const void* a, const void* b,
                                     const RecurrenceGatesWeights& weights, void* scratch);
// da_log[heads] and ddt_bias[width] = (accumulate ? itself : 0) + sums over rows. dbeta: state space only.
int64_t recurrence_gates_weight_scratch_bytes(const RecurrenceGatesShape& shape);
void recurrence_gates_backward_weight(const RecurrenceGatesShape& shape, float* da_log, float* ddt_bias,
                                      const float* dg, const float* dbeta, const void* a,
                                      const RecurrenceGatesWeights& weights, bool accumulate_a_log,
                                      bool accumulate_dt_bias, void* scratch);

}  // namespace strata::cpu
