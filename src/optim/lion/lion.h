// Lion (Chen et al. 2023, arXiv 2302.06675, algorithm 2): the sign of a mixed momentum.
#pragma once

#include "optim/signatures.h"

namespace strata::optim {

// With g = gradient · grad_scale and rate = lr · lr_scale:
//   p -= rate · weight_decay · p;   p -= rate · sign(beta1 m + (1 - beta1) g);   m = beta2 m + (1 - beta2) g
struct LionUpdate : MomentumUpdate {
  static const graph::OpDef def;
};

struct Lion {
  double beta1 = 0.9, beta2 = 0.99;
  bool operator==(const Lion&) const = default;
  void describe(graph::AttributeText& to) const {
    to("beta1", beta1);
    to("beta2", beta2);
  }
  using Ops = OpList<LionUpdate>;
  static const Definition definition;
};

}  // namespace strata::optim
