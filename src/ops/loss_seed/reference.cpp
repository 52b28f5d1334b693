#include "ops/reference.h"
#include "graph/loss_seed.h"

namespace strata::reference {

template <>
void compute(const Arrays<graph::LossSeed>& at) {
  const double main = at.in.main_terms.at(0), own = at.in.terms.at(0);
  const double scale = at.in.scale.present() ? at.in.scale.at(0) : 1;
  at.out.seed.put(0, own > 0 ? at.attrs.weight * main / own * scale : 0);
}

}  // namespace strata::reference
