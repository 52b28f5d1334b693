// Packs weights for bf16 dot products (gemm.h), a range of rows at a time.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm.h"
#include "tensor/dtype.h"

namespace strata::cpu {

// Rows of a weight that fill whole cache lines of both packed layouts. Ranges of rows that are packed
// separately must begin at a multiple.
inline constexpr int64_t kEncodedRows = 16;

// Whether encode_rows can pack this layout: bf16 in whole VNNI panels.
bool encodes_by_rows(const WeightEncoding& encoding);

// Rounds rows [begin, end) of the dense fp32 master W[n, k] into its packed layout for a bf16 GEMM
// (plan_weight_encoding). `begin` is a multiple of kEncodedRows, `end` a multiple or n. Does not write the
// zeros that pad blocks; clear_encoding does.
void encode_rows(const WeightEncoding& encoding, BF16* to, const float* master, int64_t begin, int64_t end);

// Zeroes the padding of a packed weight, and elements next to it: call it before encode_rows.
void clear_encoding(const WeightEncoding& encoding, BF16* to);

}  // namespace strata::cpu
