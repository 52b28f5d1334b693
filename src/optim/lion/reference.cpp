#include "optim/reference.h"
#include "base/parallel.h"
#include "optim/lion/lion.h"

namespace strata::reference {

template <>
void compute(const Arrays<optim::LionUpdate>& at) {
  const Update update(at);
  if (update.scalars.skip != 0) return;
  const double beta1 = at.attrs.rule.optimizer.as<optim::Lion>().beta1;
  const double beta2 = at.attrs.rule.optimizer.as<optim::Lion>().beta2;
  parallel_ranges(update.count, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t held = update.state_first + i;
      const double g = update.g(i), m = at.in.momentum.at(held), mixed = beta1 * m + (1 - beta1) * g;
      const double sign = mixed > 0 ? 1 : mixed < 0 ? -1 : 0;
      update.put_p(i, update.p(i) * update.keep - update.rate * sign);
      at.out.momentum.put(held, beta2 * m + (1 - beta2) * g);
    }
  });
}

}  // namespace strata::reference
