#include "optim/delayed_scale/delayed_scale.h"

#include <limits>

#include "optim/case_operands.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<optim::FollowHistory>(Cases& to) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  struct Step {
    const char* name;
    double greatest;
    bool is_skipped;
  };
  for (const Step& one :
       {Step{"", 3, false}, Step{"_skipped", 3, true}, Step{"_of_infinity", kInfinity, false}}) {
    to.add<optim::FollowHistory>(
        std::string("follow_history") + one.name,
        {.history = positive({1, 9}),
         .greatest = f32_of({1, 1}, [greatest = one.greatest](int64_t) { return greatest; }),
         .decision = bytes_of(optim::GuardDecision{.skip = one.is_skipped}, optim::kDecisionBytes)},
        {}, {.updates = {{"history", "history"}}, .replicated_only = true});
  }
  to.untimed<optim::FollowHistory>(kFewNumbers);
}

}  // namespace strata::device
