#include "device/reference/update.h"

#include <cmath>
#include <cstring>

#include "optim/adamw.h"
#include "tensor/update_scalars.h"

namespace strata::reference {

static_assert(kNormBlock == optim::kNormBlock, "a partial sum covers as many elements in op and kernel");
static_assert(sizeof(UpdateScalars) <= optim::kScalarBytes, "the scalars fit their place");

void update_scalars(const Call& call) {
  optim::UpdateHyper hyper;
  std::memcpy(&hyper, call.in[0].data, sizeof hyper);
  int64_t count = 0;
  std::memcpy(&count, call.in[1].data, sizeof count);
  double squares = 0;
  for (size_t i = 2; i < call.in.size(); ++i) {
    for (int64_t j = 0; j < call.in[i].shape.elements(); ++j) squares += call.in[i].at(j);
  }
  // Gradients are sums over tokens. A step without a valid target has no gradient.
  const double mean = count > 0 ? 1.0 / static_cast<double>(count) : 0.0;
  const double norm = std::sqrt(squares) * mean;
  const bool clips = hyper.max_grad_norm > 0 && norm + 1e-6 > hyper.max_grad_norm;
  const UpdateScalars scalars{
      .lr = hyper.lr,
      .beta1 = hyper.beta1,
      .beta2 = hyper.beta2,
      .eps = hyper.eps,
      .bias_correction1 = hyper.bias_correction1,
      .bias_correction2 = hyper.bias_correction2,
      .grad_scale = static_cast<float>(clips ? mean * hyper.max_grad_norm / (norm + 1e-6) : mean),
      .skip = count == 0 || !std::isfinite(norm)};
  std::memcpy(call.out[0].data, &scalars, sizeof scalars);
  call.out[1].put(0, norm);
}

}  // namespace strata::reference
