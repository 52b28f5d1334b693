// Shared code of the optimizers' CPU bindings.
#pragma once

#include "device/cpu/cpu.h"
#include "kernels/cpu/optimizer.h"
#include "optim/adamw/adamw.h"
#include "optim/lion/lion.h"

namespace strata::device {

inline const UpdateScalars* scalars_at(const uint8_t* place) {
  return reinterpret_cast<const UpdateScalars*>(place);
}

inline cpu::AdamWConstants adamw_constants(const optim::AdamW& adamw, const optim::UpdateRule& rule) {
  return {.beta1 = adamw.beta1,
          .beta2 = adamw.beta2,
          .eps = static_cast<float>(adamw.eps),
          .weight_decay = static_cast<float>(rule.weight_decay),
          .lr_scale = static_cast<float>(rule.lr_scale)};
}

inline cpu::LionConstants lion_constants(const optim::Lion& lion, const optim::UpdateRule& rule) {
  return {.beta1 = lion.beta1,
          .beta2 = lion.beta2,
          .weight_decay = static_cast<float>(rule.weight_decay),
          .lr_scale = static_cast<float>(rule.lr_scale)};
}

}  // namespace strata::device
