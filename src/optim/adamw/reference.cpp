#include "optim/reference.h"
#include "base/parallel.h"
#include "optim/adamw/adamw.h"

namespace strata::reference {

template <>
void compute(const Arrays<optim::AdamWUpdate>& at) {
  const Update update(at);
  if (update.scalars.skip != 0) return;
  const AdamWStep adamw(at.attrs.rule.optimizer.as<optim::AdamW>(), update.scalars, update.rate);
  parallel_ranges(update.count, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t held = update.state_first + i;
      const double g = update.g(i), m = adamw.m(at.in.m.at(held), g), v = adamw.v(at.in.v.at(held), g);
      update.put_p(i, update.p(i) * update.keep - adamw.of(m, v));
      at.out.m.put(held, m);
      at.out.v.put(held, v);
    }
  });
}

}  // namespace strata::reference
