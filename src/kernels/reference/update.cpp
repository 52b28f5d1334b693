#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "kernels/cpu/optimizer.h"
#include "kernels/reference/call.h"

namespace strata::reference {

// (x) → partials: sums of squares of consecutive blocks
void sum_of_squares(const Call& call) {
  const Array &x = call.in[0], &partials = call.out[0];
  parallel_for(partials.shape.elements(), [&](int64_t block) {
    const int64_t end = std::min(x.shape.elements(), (block + 1) * cpu::kNormBlock);
    double sum = 0;
    for (int64_t i = block * cpu::kNormBlock; i < end; ++i) sum += x.at(i) * x.at(i);
    partials.put(block, sum);
  });
}

// (master, m, v, grad, scalars) → master, m, v, in place; the formula stands at cpu::adamw_update
void adamw(const Call& call) {
  cpu::AdamWScalars scalars;
  std::memcpy(&scalars, call.in[4].data, sizeof scalars);
  if (scalars.skip != 0) return;
  const double rate = static_cast<double>(scalars.lr) * call.attrs.real("lr_scale");
  const double decay = call.attrs.real("weight_decay");
  const auto correction1 = static_cast<double>(scalars.bias_correction1);
  const auto correction2 = static_cast<double>(scalars.bias_correction2);
  const auto scale = static_cast<double>(scalars.grad_scale), eps = static_cast<double>(scalars.eps);
  parallel_ranges(call.in[0].shape.elements(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double g = call.in[3].at(i) * scale;
      const double m = scalars.beta1 * call.in[1].at(i) + (1 - scalars.beta1) * g;
      const double v = scalars.beta2 * call.in[2].at(i) + (1 - scalars.beta2) * g * g;
      const double p = call.in[0].at(i) * (1 - rate * decay);
      call.out[0].put(i, p - rate / correction1 * m / (std::sqrt(v) / std::sqrt(correction2) + eps));
      call.out[1].put(i, m);
      call.out[2].put(i, v);
    }
  });
}

}  // namespace strata::reference
