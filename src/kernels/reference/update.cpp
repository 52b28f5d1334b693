#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "kernels/reference/call.h"
#include "optim/adamw.h"
#include "tensor/update_scalars.h"

namespace strata::reference {
namespace {

static_assert(sizeof(UpdateScalars) <= optim::kScalarBytes, "the scalars fit their place");

// (x) → partials: sums of squares of consecutive blocks
void sum_of_squares(const Call& call) {
  const Array &x = call.in[0], &partials = call.out[0];
  parallel_for(partials.shape.elements(), [&](int64_t block) {
    const int64_t end = std::min(x.shape.elements(), (block + 1) * optim::kNormBlock);
    double sum = 0;
    for (int64_t i = block * optim::kNormBlock; i < end; ++i) sum += x.at(i) * x.at(i);
    partials.put(block, sum);
  });
}

// (hyper, token count, partials…) → scalars, norm
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

// (partials…) → norm
void root_of_sum(const Call& call) {
  double sum = 0;
  for (const Array& partials : call.in) {
    for (int64_t i = 0; i < partials.shape.elements(); ++i) sum += partials.at(i);
  }
  call.out[0].put(0, std::sqrt(sum));
}

// The factor on the learning rate of element i of n, where the node gives parts of the rows factors.
double part_scale(const optim::AdamWAttrs& attrs, int64_t i, int64_t n) {
  const auto& rows = attrs.part_rows;
  double whole = 0;
  for (const double part : rows) whole += part;
  const double place = (static_cast<double>(i) + 0.5) / static_cast<double>(n) * whole;
  double end = 0;
  for (size_t part = 0; part < rows.size(); ++part) {
    end += rows[part];
    if (place < end) return attrs.part_scales[part];
  }
  return 1;
}

// (master, m, v, grad, scalars) → master, m, v, in place; the formula stands at cpu::adamw_update. A part's
// factor changes its rate, but not rate · decay.
void adamw(const Call& call) {
  UpdateScalars scalars;
  std::memcpy(&scalars, call.in[4].data, sizeof scalars);
  if (scalars.skip != 0) return;
  const auto& attrs = call.attrs.as<optim::AdamWAttrs>();
  const double whole_rate = static_cast<double>(scalars.lr) * attrs.lr_scale;
  const double decay = whole_rate * attrs.weight_decay;
  const int64_t n = call.in[0].shape.elements();
  const auto correction1 = static_cast<double>(scalars.bias_correction1);
  const auto correction2 = static_cast<double>(scalars.bias_correction2);
  const auto scale = static_cast<double>(scalars.grad_scale), eps = static_cast<double>(scalars.eps);
  parallel_ranges(n, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double rate = whole_rate * part_scale(attrs, i, n);
      const double g = call.in[3].at(i) * scale;
      const double m = scalars.beta1 * call.in[1].at(i) + (1 - scalars.beta1) * g;
      const double v = scalars.beta2 * call.in[2].at(i) + (1 - scalars.beta2) * g * g;
      const double p = call.in[0].at(i) * (1 - decay);
      call.out[0].put(i, p - rate / correction1 * m / (std::sqrt(v) / std::sqrt(correction2) + eps));
      call.out[1].put(i, m);
      call.out[2].put(i, v);
    }
  });
}

}  // namespace

std::span<const Row> update_kernels() {
  static const Row kRows[] = {
      {&optim::kSumOfSquares, sum_of_squares},
      {&optim::kAdamW, adamw},
      {&optim::kUpdateScalars, update_scalars},
      {&optim::kRootOfSum, root_of_sum},
  };
  return kRows;
}

}  // namespace strata::reference
