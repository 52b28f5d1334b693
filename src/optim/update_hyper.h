// Constants of a step's update; the host writes them before the step, every device reads them from memory.
#pragma once

#include "optim/guard.h"

namespace strata::optim {

struct UpdateHyper {
  double max_grad_norm = 0;  // 0: no clipping
  float lr = 0;
  float embedding_scale = 1;  // factor on the gradients of embeddings
  GuardRules rules = {};
};

}  // namespace strata::optim
