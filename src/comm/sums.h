// The arithmetic of collectives: sums over members in their order, in fp32 (f64 and integers in their own
// type).
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
  bool rounds = false;        // the sum too
  bool adds = false;          // adds to `out`
};

// out[i] = Σ over domains of Σ over their addends, i in [0, n), from the left. domain_ends[d] is where domain
// d ends in `addends`. `out` is of out_type (rule.dtype or rule.wire); it may be one of the addends where it
// is of the same type, else overlaps none. Subnormal numbers count as zero, whatever the thread's own mode.
void add_up(const SumRule& rule, std::span<const Addend> addends, std::span<const int> domain_ends, void* out,
            DType out_type, int64_t n);

}  // namespace strata::comm
