// Experts that choose their tokens, as ops/expert_choice defines them.
#pragma once

#include <cstdint>

#include "kernels/cpu/router.h"
#include "tensor/dtype.h"

namespace strata::cpu {

struct ExpertChoiceShape {
  int64_t groups = 1, rows = 1;  // rows: tokens per group
  int64_t experts = 1;
  int64_t capacity = 1;
  RouterScore score = RouterScore::kSoftmax;
  float scale = 1;
  int64_t slots() const { return groups * experts * capacity; }
};
int64_t expert_choice_scratch_bytes(const ExpertChoiceShape& shape);
// tokens, experts and weights have one value per token-expert pair.
void expert_choice(const ExpertChoiceShape& shape, int32_t* tokens, int32_t* experts, float* weights,
                   const float* logits, void* scratch);
int64_t expert_choice_backward_scratch_bytes(const ExpertChoiceShape& shape);
void expert_choice_backward(const ExpertChoiceShape& shape, float* d_logits, const float* d_weights,
                            const float* logits, const int32_t* tokens, void* scratch);

struct GroupRowsShape {
  int64_t groups = 1, rows = 1, slots = 1;
  int64_t columns = 0;
  DType dtype = DType::kF32;
};
// y[pairs, columns] = rows of x[groups · rows, columns].
void gather_rows(const GroupRowsShape& shape, void* y, const void* x, const int32_t* tokens);
// y[groups · rows, columns] = sums of the rows of h[pairs, columns].
int64_t scatter_rows_scratch_bytes(const GroupRowsShape& shape);
void scatter_rows(const GroupRowsShape& shape, void* y, const void* h, const int32_t* tokens, void* scratch);

}  // namespace strata::cpu
