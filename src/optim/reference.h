// Shared code of the optimizers' reference kernels.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "ops/reference.h"
#include "optim/adamw/adamw.h"
#include "tensor/update_scalars.h"

namespace strata::reference {

inline UpdateScalars scalars_of(const Array& bytes) {
  UpdateScalars scalars;
  std::memcpy(&scalars, bytes.data, sizeof scalars);
  return scalars;
}

inline void put_all(const Array& array, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) array.put(static_cast<int64_t>(i), values[i]);
}

// The step's scalars, and the elements that a node of an optimizer's op is for.
struct Update : optim::UpdateElements {
  template <typename Op>
  explicit Update(const Arrays<Op>& at)
      : UpdateElements(at.attrs, at.in.parameter.shape),
        scalars(scalars_of(at.in.scalars)),
        rate(static_cast<double>(scalars.lr) * at.attrs.rule.lr_scale),
        keep(1 - rate * at.attrs.rule.weight_decay),
        parameter(at.out.parameter),
        gradient(at.in.gradient) {}

  // These take element i of the node's rows.
  double p(int64_t i) const { return parameter.at(first + i); }
  double g(int64_t i) const { return gradient.at(first + i) * static_cast<double>(scalars.grad_scale); }
  void put_p(int64_t i, double value) const { parameter.put(first + i, value); }

  UpdateScalars scalars;
  double rate, keep;
  const Array &parameter, &gradient;
};

// AdamW's moments, and its bias-corrected step by new ones.
struct AdamWStep {
  AdamWStep(const optim::AdamW& constants, const UpdateScalars& scalars, double rate)
      : beta1(constants.beta1),
        beta2(constants.beta2),
        eps(static_cast<double>(static_cast<float>(constants.eps))),
        step(rate / static_cast<double>(bias_correction(beta1, scalars))),
        root_of_correction2(std::sqrt(static_cast<double>(bias_correction(beta2, scalars)))) {}
  double m(double old, double g) const { return beta1 * old + (1 - beta1) * g; }
  double v(double old, double g) const { return beta2 * old + (1 - beta2) * g * g; }
  double of(double new_m, double new_v) const {
    return step * new_m / (std::sqrt(new_v) / root_of_correction2 + eps);
  }
  double beta1, beta2, eps, step, root_of_correction2;
};

}  // namespace strata::reference
