// Parts of kernels' names.
#pragma once

#include <string>

#include "kernels/gpu/launch.h"

namespace strata::gpu {

inline std::string type_of(DType dtype) {
  return dtype == DType::kBF16 ? "_bf16" : "_f32";
}
inline const char* name_of_layout(GemmLayout layout) {
  return layout == GemmLayout::kNT ? "nt" : layout == GemmLayout::kNN ? "nn" : "tn";
}

}  // namespace strata::gpu
