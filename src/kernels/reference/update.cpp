#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "kernels/reference/call.h"
#include "tensor/update_scalars.h"

namespace strata::reference {

// (x) → partials: sums of squares of consecutive blocks, of which all but the last have kNormBlock elements
void sum_of_squares(const Call& call) {
  const Array &x = call.in[0], &partials = call.out[0];
  parallel_for(partials.shape.elements(), [&](int64_t block) {
    const int64_t end = std::min(x.shape.elements(), (block + 1) * kNormBlock);
    double sum = 0;
    for (int64_t i = block * kNormBlock; i < end; ++i) sum += x.at(i) * x.at(i);
    partials.put(block, sum);
  });
}

// (partials…) → norm
void root_of_sum(const Call& call) {
  double sum = 0;
  for (const Array& partials : call.in) {
    for (int64_t i = 0; i < partials.shape.elements(); ++i) sum += partials.at(i);
  }
  call.out[0].put(0, std::sqrt(sum));
}

namespace {

// The factor on the learning rate of element i of n, where the node gives parts of the rows factors.
double part_scale(const graph::Attrs& attrs, int64_t i, int64_t n) {
  if (!attrs.has("part_rows")) return 1;
  const auto& rows = attrs.reals("part_rows");
  double whole = 0;
  for (const double part : rows) whole += part;
  const double place = (static_cast<double>(i) + 0.5) / static_cast<double>(n) * whole;
  double end = 0;
  for (size_t part = 0; part < rows.size(); ++part) {
    end += rows[part];
    if (place < end) return attrs.reals("part_scales")[part];
  }
  return 1;
}

}  // namespace

// (master, m, v, grad, scalars) → master, m, v, in place; the formula stands at cpu::adamw_update. A part's
// factor changes its rate, but not rate · decay.
void adamw(const Call& call) {
  UpdateScalars scalars;
  std::memcpy(&scalars, call.in[4].data, sizeof scalars);
  if (scalars.skip != 0) return;
  const double whole_rate = static_cast<double>(scalars.lr) * call.attrs.real("lr_scale");
  const double decay = whole_rate * call.attrs.real("weight_decay");
  const int64_t n = call.in[0].shape.elements();
  const auto correction1 = static_cast<double>(scalars.bias_correction1);
  const auto correction2 = static_cast<double>(scalars.bias_correction2);
  const auto scale = static_cast<double>(scalars.grad_scale), eps = static_cast<double>(scalars.eps);
  parallel_ranges(n, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double rate = whole_rate * part_scale(call.attrs, i, n);
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

}  // namespace strata::reference
