// Sums of collectives: over members in order, in fp32 (f64 and integers in their own type).
#pragma once

#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace strata::comm {

struct Addend {
  const void* at = nullptr;
  DType type = DType::kF32;  // the sum's dtype, or its wire type
};

struct SumRule {
  DType dtype = DType::kF32;  // of the tensors
  DType wire = DType::kF32;   // wire type: addends are rounded to it, and sums of several domains
  bool rounds = false;        // rounds the result too
  bool adds = false;          // accumulates into `out`
};

// out[i] = Σ over domains of Σ over their addends, i in [0, n), from left to right. domain_ends[d] is the end
// of domain d in `addends`. `out` has out_type (rule.dtype or rule.wire); it may be one of the addends if
// that has the same type, and overlaps no other. Subnormal numbers count as zero in any floating-point mode.
void add_up(const SumRule& rule, std::span<const Addend> addends, std::span<const int> domain_ends, void* out,
            DType out_type, int64_t n);

}  // namespace strata::comm
