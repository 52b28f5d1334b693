// Kernels by the type of their activations.
#pragma once

#include "base/error.h"
#include "tensor/dtype.h"

namespace strata::cpu {

// The instance of a kernel for activations of a dtype. InternalError for one that no activation has.
template <typename Kernel>
Kernel* by_dtype(DType dtype, Kernel* f32, Kernel* bf16, Kernel* f16) {
  if (dtype == DType::kF32) return f32;
  STRATA_CHECK(dtype == DType::kBF16 || dtype == DType::kF16, "activations are {}: expected f32, bf16 or f16",
               name_of(dtype));
  return dtype == DType::kBF16 ? bf16 : f16;
}

}  // namespace strata::cpu
