// AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101), in PyTorch's order of operations.
#pragma once

#include "optim/signatures.h"

namespace strata::optim {

// With g = gradient · grad_scale, rate = lr · lr_scale and t updates made, this one included:
//   p -= rate · weight_decay · p;   m += (1 - beta1) (g - m);   v = beta2 v + (1 - beta2) g²
//   p -= rate / (1 - beta1^t) · m / (√v / √(1 - beta2^t) + eps)
struct AdamWUpdate {
  template <template <typename> class Of>
  struct In {
    Of<F32> parameter, m, v, gradient;
    Of<U8> scalars;
    static constexpr std::string_view names = "parameter m v gradient scalars";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> parameter, m, v;
    Of<Many<Weight>> encodings;  // of the parameter, that the kernel writes in the same pass
    static constexpr std::string_view names = "parameter m v encodings";
  };
  using Attrs = UpdateAttrs;
  static const graph::OpDef def;
};

struct AdamW {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  bool operator==(const AdamW&) const = default;
  void describe(graph::AttributeText& to) const {
    to("beta1", beta1);
    to("beta2", beta2);
    to("eps", eps);
  }
  using Ops = OpList<AdamWUpdate>;
  static const Definition definition;
};

}  // namespace strata::optim
