#include <fmt/core.h>

#include <limits>

#include "ops/capacity/capacity.h"
#include "ops/case_experts.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::LimitExperts>(Cases& to) {
  using Keep = ops::CapacityAttrs::Keep;
  for (const ExpertSizes& s : expert_sizes()) {
    // Many of the same weight, and none that is a number here and there.
    const Operand weights = f32_of({s.tokens, s.k}, [](int64_t i) {
      return i % 11 == 7 ? std::numeric_limits<double>::quiet_NaN() : 0.1 * static_cast<double>(i * 5 % 7);
    });
    const Operand begins = i32_by(s.tokens, [rows = s.rows](int64_t i) {
      return static_cast<double>(i % rows < rows / 2 ? 0 : rows / 2);
    });
    for (const int64_t capacity : {int64_t{1}, std::max<int64_t>(2, s.rows / 2)}) {
      const auto add = [&](const char* name, Keep keep, const Operand& documents, ops::IdleRows idle = {}) {
        to.add<ops::LimitExperts>(
            fmt::format("limit_experts_{}_{}{}", capacity, name, s.name),
            {.ids = ids_of(s), .weights = weights, .begins = documents},
            {.experts = s.experts, .rows = s.rows, .capacity = capacity, .keep = keep, .idle = idle},
            {.ragged = s.ragged});
      };
      add("first", Keep::kFirst, absent());
      add("first_of_documents", Keep::kFirst, begins);
      add("greatest", Keep::kGreatest, absent());
      if (s.ragged || s.rows % 2 != 0) continue;
      add("first_idle", Keep::kFirst, absent(), {s.rows / 2, 1});
      add("greatest_idle", Keep::kGreatest, absent(), {s.rows / 2, 1});
    }
  }
  to.untimed<ops::LimitExperts>(kFewNumbers);
}

template <>
void cases<ops::WeightsOfKept>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes())
    to.add<ops::WeightsOfKept>("weights_of_kept" + s.name,
                               {.weights = f32({s.tokens, s.k}), .ids = ids_with_dropped(s)}, {},
                               {.ragged = s.ragged});
  to.untimed<ops::WeightsOfKept>(kFewNumbers);
}

}  // namespace strata::device
