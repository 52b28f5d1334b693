#include "optim/reference.h"
#include "optim/router_bias/router_bias.h"

namespace strata::reference {

template <>
void compute(const Arrays<optim::RouterBiasUpdate>& at) {
  if (scalars_of(at.in.scalars).skip != 0) return;
  const int64_t experts = at.in.bias.shape[0];
  const auto load = [&](int64_t e) { return static_cast<double>(at.in.loads.index_at(e)); };
  double mean = 0;
  for (int64_t e = 0; e < experts; ++e) mean += load(e) / static_cast<double>(experts);
  const double rate = at.attrs.rate;
  for (int64_t e = 0; e < experts; ++e) {
    const double below = mean - load(e);
    at.out.bias.put(e, at.in.bias.at(e) + (below > 0 ? rate : below < 0 ? -rate : 0));
  }
}

}  // namespace strata::reference
