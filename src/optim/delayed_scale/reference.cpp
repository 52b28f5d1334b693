#include "optim/delayed_scale/delayed_scale.h"

#include <cmath>
#include <cstring>

#include "optim/reference.h"

namespace strata::reference {

template <>
void compute(const Arrays<optim::FollowHistory>& at) {
  optim::GuardDecision decision;
  std::memcpy(&decision, at.in.decision.data, sizeof decision);
  if (decision.skip != 0) return;
  const Array& history = at.out.history;
  const int64_t last = history.shape[1] - 1;
  const double greatest = at.in.greatest.at(0);
  double most = std::isfinite(greatest) ? greatest : 0;
  for (int64_t i = 1; i < last; ++i) {
    history.put(i, history.at(i + 1));
    most = std::max(most, history.at(i));
  }
  history.put(last, std::isfinite(greatest) ? greatest : 0);
  if (most > 0) history.put(0, most);
}

}  // namespace strata::reference
