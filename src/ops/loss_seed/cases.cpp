#include <utility>

#include "graph/loss_seed.h"
#include "ops/cases.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<graph::LossSeed>(Cases& to) {
  for (const auto& [name, own] : {std::pair{"loss_seed", 28.0}, std::pair{"loss_seed_without_terms", 0.0}})
    to.add<graph::LossSeed>(name, {.main_terms = i64_of(70), .terms = i64_of(own)}, {0.3},
                            {.replicated_only = true});
  to.add<graph::LossSeed>(
      "loss_seed_scaled",
      {.main_terms = i64_of(70), .terms = i64_of(28), .scale = f32_of({1}, [](int64_t) { return 4096.0; })},
      {0.3}, {.replicated_only = true});
  to.untimed<graph::LossSeed>(kFewNumbers);
}

}  // namespace strata::device
