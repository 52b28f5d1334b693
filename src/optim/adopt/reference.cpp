#include <algorithm>

#include "base/parallel.h"
#include "optim/adopt/adopt.h"
#include "optim/reference.h"

namespace strata::reference {

template <>
void compute(const Arrays<optim::AdoptUpdate>& at) {
  const Update update(at);
  if (update.scalars.skip != 0) return;
  const optim::Adopt adopt = at.attrs.rule.optimizer.as<optim::Adopt>();
  const bool first = update.scalars.update <= 1;
  const double most = std::pow(static_cast<double>(update.scalars.update - 1), 0.25);
  parallel_ranges(update.count, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t held = update.state_first + i;
      const double g = update.g(i), v = at.in.v.at(held);
      at.out.v.put(held, first ? g * g : adopt.beta2 * v + (1 - adopt.beta2) * g * g);
      if (first) continue;
      const double normed = std::clamp(g / std::max(std::sqrt(v), adopt.eps), -most, most);
      const double m = adopt.beta1 * at.in.m.at(held) + (1 - adopt.beta1) * normed;
      at.out.m.put(held, m);
      update.put_p(i, update.p(i) * update.keep - update.rate * m);
    }
  });
}

}  // namespace strata::reference
