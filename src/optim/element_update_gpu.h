// Updates on GPUs that change each element by itself: AdamW, ADOPT, Lion.
#pragma once

#include "device/gpu/gpu.h"
#include "optim/optimizer.h"

namespace strata::device {

// What all of them take from the rule; moments, eps and addresses are still to be set.
inline gpu::ElementUpdateArgs element_update_args(const optim::UpdateElements& own,
                                                  const optim::UpdateRule& rule) {
  gpu::ElementUpdateArgs args{};
  args.n = own.count;
  args.weight_decay = static_cast<float>(rule.weight_decay);
  args.lr_scale = static_cast<float>(rule.lr_scale);
  return args;
}

// With the addresses of a call; `v` may be nullptr.
inline gpu::ElementUpdateArgs placed(gpu::ElementUpdateArgs args, const optim::UpdateElements& own,
                                     float* parameter, float* m, float* v, const float* gradient,
                                     const uint8_t* scalars) {
  args.master = parameter + own.first;
  args.m = m + own.state_first;
  if (v != nullptr) args.v = v + own.state_first;
  args.grad = gradient + own.first;
  args.scalars = update_scalars_at(scalars);
  return args;
}

}  // namespace strata::device
