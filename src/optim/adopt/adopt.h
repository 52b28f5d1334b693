// ADOPT (Taniguchi et al. 2024, arXiv 2411.02853, algorithm 2), decoupled weight decay and clipping as the
// authors' package (iShohei220/adopt): the second moment that a gradient is divided by does not hold it yet.
#pragma once

#include "optim/adamw/adamw.h"

namespace strata::optim {

// With g = gradient · grad_scale, rate = lr · lr_scale and t updates made, this one included:
//   t = 1:  v = g²
//   else:   p -= rate · weight_decay · p;   m += (1 - beta1) (clip(g / max(√v, eps), ±(t - 1)^¼) - m)
//           p -= rate · m;   v = beta2 v + (1 - beta2) g²
struct AdoptUpdate {
  template <template <typename> class Of>
  using In = AdamWUpdate::In<Of>;
  template <template <typename> class Of>
  struct Out {
    Of<F32> parameter, m, v;
    static constexpr std::string_view names = "parameter m v";
  };
  using Attrs = UpdateAttrs;
  static const graph::OpDef def;
};

struct Adopt {
  double beta1 = 0.9, beta2 = 0.9999, eps = 1e-6;
  bool operator==(const Adopt&) const = default;
  void describe(graph::AttributeText& to) const {
    to("beta1", beta1);
    to("beta2", beta2);
    to("eps", eps);
  }
  using Ops = OpList<AdoptUpdate>;
  static const Definition definition;
};

}  // namespace strata::optim
