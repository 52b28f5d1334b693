#include <string>
#include <utility>

#include "ops/case_routers.h"
#include "ops/expert_choice/expert_choice.h"

namespace strata::device {

using namespace op_rows;

namespace {

// Such that no expert hesitates: with these sizes the last token that one takes is far from the next.
Operand logits_of_choice(const RouterSizes& s) {
  return f32_of({s.tokens(), s.experts}, [columns = s.experts](int64_t i) {
    const int64_t token = i / columns, column = i % columns;
    return 0.1 * static_cast<double>((token * 29 + column * 22 * (token % 5 + 1)) % 41) - 1.5;
  });
}
// Ascending within an expert, and some of them the same for several.
Operand chosen_tokens(const RouterSizes& s) {
  return i32_by(s.slots(), [s](int64_t slot) {
    const int64_t expert = slot / s.capacity % s.experts, place = slot % s.capacity;
    return static_cast<double>((expert % 2 + place) % s.rows);
  });
}

// Calls add(suffix of the name, attributes) for each kind of score.
template <typename Add>
void for_scores(const RouterSizes& s, const Add& add) {
  using Score = ops::RouteAttrs::Score;
  for (const auto& [name, score] : {std::pair{"", Score::kSoftmax}, std::pair{"_sigmoid", Score::kSigmoid}})
    add(name + s.name,
        ops::ExpertChoiceAttrs{.score = score, .rows = s.rows, .capacity = s.capacity, .scale = 1.5});
}

ops::GroupRowsAttrs group_of(const RouterSizes& s) {
  return {.rows = s.rows, .slots = s.experts * s.capacity};
}

}  // namespace

template <>
void cases<ops::ExpertChoice>(Cases& to) {
  for (const RouterSizes& s : router_sizes()) {
    for_scores(s, [&](const std::string& name, const ops::ExpertChoiceAttrs& attrs) {
      to.add<ops::ExpertChoice>("expert_choice" + name, {.logits = logits_of_choice(s)}, attrs,
                                {.ragged = s.ragged, .differentiable = {{"weights"}}});
    });
  }
  to.untimed<ops::ExpertChoice>(kOther);
}

template <>
void cases<ops::ExpertChoiceGrad>(Cases& to) {
  for (const RouterSizes& s : router_sizes()) {
    for_scores(s, [&](const std::string& name, const ops::ExpertChoiceAttrs& attrs) {
      to.add<ops::ExpertChoiceGrad>(
          "expert_choice_grad" + name,
          {.dweights = f32({s.slots(), 1}), .logits = logits_of_choice(s), .tokens = chosen_tokens(s)}, attrs,
          {.ragged = s.ragged});
    });
  }
  to.untimed<ops::ExpertChoiceGrad>(kOther);
}

template <>
void cases<ops::GatherRows>(Cases& to) {
  for (const RouterSizes& s : router_sizes())
    to.add<ops::GatherRows>("gather_rows" + s.name,
                            {.x = act({s.tokens(), s.width}), .tokens = chosen_tokens(s)}, group_of(s),
                            {.ragged = s.ragged});
  to.untimed<ops::GatherRows>(kOther);
}

template <>
void cases<ops::ScatterRows>(Cases& to) {
  for (const RouterSizes& s : router_sizes())
    to.add<ops::ScatterRows>("scatter_rows" + s.name,
                             {.x = act({s.slots(), s.width}), .tokens = chosen_tokens(s)}, group_of(s),
                             {.ragged = s.ragged});
  to.untimed<ops::ScatterRows>(kOther);
}

}  // namespace strata::device
