// Rows brought together by expert. Internal to the experts family.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu::detail {

// to[count, width] = from[rows[i]], bf16 made fp32; `stride`: elements between the rows of `from`.
void gather_rows(float* to, const BF16* from, int64_t stride, const int32_t* rows, int64_t count,
                 int64_t width);
// to[rows[i]] = from[i], rounded; rows of `from` are `from_stride` apart. Without rows: to[i].
void scatter_rows(BF16* to, int64_t stride, const int32_t* rows, const float* from, int64_t from_stride,
                  int64_t count, int64_t width);

// The slots of each chunk of tokens in the order of their experts, those of one expert in ascending order;
// those of no expert, -1, are left out.
struct ExpertOrder {
  int64_t tokens, k, experts, chunk_tokens;
  const int32_t* offsets;  // [tokens + 1]: a token's slots are [offsets[t], offsets[t + 1]); null: k each
  int32_t* begins;         // [chunks, experts + 1]: where an expert's slots begin
  int32_t* slots;          // [all slots]
  int32_t* token_of;       // [all slots]: the token of each of these slots, counted from the chunk's first
  int64_t first_slot(int64_t token) const { return offsets != nullptr ? offsets[token] : token * k; }
};
// Throws InternalError on an id outside [-1, experts).
void order_by_expert(const ExpertOrder& order, const int32_t* ids);

}  // namespace strata::cpu::detail
