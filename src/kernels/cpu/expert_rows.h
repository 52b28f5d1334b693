// Gathers rows by expert. Internal to the experts family.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu::detail {

// to[count, width] = from[rows[i]], bf16 or fp16 converted to fp32; `stride`: elements between rows of `from`.
void gather_rows(float* to, DType dtype, const void* from, int64_t stride, const int32_t* rows, int64_t count,
                 int64_t width);
// to[rows[i]] = from[i], rounded; rows of `from` are `from_stride` apart. rows null: to[i].
void scatter_rows(DType dtype, void* to, int64_t stride, const int32_t* rows, const float* from,
                  int64_t from_stride, int64_t count, int64_t width);

// The token-expert pairs of each chunk of tokens, sorted by expert, then in ascending order. Pairs with
// expert -1 are omitted.
struct ExpertOrder {
  int64_t tokens, k, experts, chunk_tokens;
  const int32_t* offsets;  // [tokens + 1]: a token's pairs are [offsets[t], offsets[t + 1]); null: k each
  int32_t* begins;         // [chunks, experts + 1]: first entry of each expert
  int32_t* slots;          // [all pairs]
  int32_t* token_of;       // [all pairs]: the token of each pair, relative to the chunk's first
  int64_t first_slot(int64_t token) const { return offsets != nullptr ? offsets[token] : token * k; }
};
// Throws InternalError on an id outside [-1, experts).
void order_by_expert(const ExpertOrder& order, const int32_t* ids);

}  // namespace strata::cpu::detail
