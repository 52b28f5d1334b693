// Weights in the encodings that products of bf16 read (gemm.h), written a few rows at a time.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm.h"
#include "tensor/dtype.h"

namespace strata::cpu {

// Rows of a weight that fill whole cache lines of both encodings: who writes an encoding by ranges of rows
// begins each at a multiple.
inline constexpr int64_t kEncodedRows = 16;

// Whether it is one of those: of the products of bf16 that read whole panels.
bool encodes_by_rows(const WeightEncoding& encoding);

// Rounds rows [begin, end) of the master W[n, k], fp32 and dense, into its encoding for one of the products
// of bf16 (plan_weight_encoding). `begin` is a multiple of kEncodedRows, and `end` one or n. The zeros that
// fill the encoding's blocks up are left as they are: clear_encoding writes them.
void encode_rows(const WeightEncoding& encoding, BF16* to, const float* master, int64_t begin, int64_t end);

// Zeros for all of an encoding that holds no element of the weight.
void clear_encoding(const WeightEncoding& encoding, BF16* to);

}  // namespace strata::cpu
