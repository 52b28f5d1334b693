// Rows of routers that are no choice of experts by each token.
#include <fmt/core.h>

#include "ops/case_operands.h"
#include "ops/expert_choice.h"
#include "ops/jitter.h"
#include "ops/soft_experts.h"
#include "ops/two_level.h"

namespace strata::device::op_rows {
namespace {

struct Sizes {
  std::string name;
  int64_t groups, rows, experts, capacity, of_expert, width;
  int64_t levels;  // groups of experts
  bool ragged;

  int64_t tokens() const { return groups * rows; }
  int64_t slots() const { return groups * experts * capacity; }
  OpCase row(const std::string& op_name, const graph::OpDef& op, std::vector<Operand> operands,
             graph::Attributes attrs = {}, std::vector<int> differentiable = {0}) const {
    return case_of(op_name + name, op, std::move(operands), std::move(attrs), ragged,
                   std::move(differentiable));
  }
};

// Such that no expert hesitates: with these sizes the last token that one takes is far from the next.
Operand logits_of(int64_t tokens, int64_t columns) {
  return f32_of({tokens, columns}, [columns](int64_t i) {
    const int64_t token = i / columns, column = i % columns;
    return 0.1 * static_cast<double>((token * 29 + column * 22 * (token % 5 + 1)) % 41) - 1.5;
  });
}

void add_choice(std::vector<OpCase>& cases, const Sizes& s) {
  using Op = ops::ExpertChoice;
  const Operand logits = logits_of(s.tokens(), s.experts);
  const auto tokens = i32_by(s.slots(), [s](int64_t slot) {
    // Ascending within an expert, and some of them the same for several.
    const int64_t expert = slot / s.capacity % s.experts, place = slot % s.capacity;
    return static_cast<double>((expert % 2 + place) % s.rows);
  });
  for (const auto& [name, score] : {std::pair{"", ops::RouteAttrs::Score::kSoftmax},
                                    std::pair{"_sigmoid", ops::RouteAttrs::Score::kSigmoid}}) {
    const ops::ExpertChoiceAttrs attrs{.score = score, .rows = s.rows, .capacity = s.capacity, .scale = 1.5};
    cases.push_back(
        s.row(fmt::format("expert_choice{}", name), ops::kExpertChoice, {logits}, attrs, {Op::kWeights}));
    cases.push_back(s.row(fmt::format("expert_choice_grad{}", name), ops::kExpertChoiceGrad,
                          {f32({s.slots(), 1}), logits, tokens}, attrs));
  }
  const ops::GroupRowsAttrs rows{.rows = s.rows, .slots = s.experts * s.capacity};
  cases.push_back(s.row("gather_rows", ops::kGatherRows, {act({s.tokens(), s.width}), tokens}, rows));
  cases.push_back(s.row("scatter_rows", ops::kScatterRows, {act({s.slots(), s.width}), tokens}, rows));
}

void add_soft(std::vector<OpCase>& cases, const Sizes& s) {
  const int64_t slots = s.experts * s.of_expert;
  const ops::SoftExpertsAttrs attrs{.rows = s.rows, .experts = s.experts};
  const Operand logits = f32({s.tokens(), slots}), x = act({s.tokens(), s.width}),
                h = act({s.groups * slots, s.width});
  cases.push_back(s.row("soft_dispatch", ops::kSoftDispatch, {x, logits}, attrs));
  cases.push_back(s.row("soft_dispatch_grad", ops::kSoftDispatchGrad, {h, x, logits}, attrs));
  cases.push_back(s.row("soft_combine", ops::kSoftCombine, {h, logits}, attrs));
  cases.push_back(s.row("soft_combine_grad", ops::kSoftCombineGrad, {x, h, logits}, attrs));
}

void add_levels(std::vector<OpCase>& cases, const Sizes& s) {
  const Operand groups = f32({s.tokens(), s.levels}), logits = f32({s.tokens(), s.experts});
  cases.push_back(s.row("two_level_logits", ops::kTwoLevelLogits, {groups, logits}));
  cases.push_back(s.row("two_level_logits_grad", ops::kTwoLevelLogitsGrad, {logits, groups, logits}));
}

void add_jitter(std::vector<OpCase>& cases, const Sizes& s) {
  Operand places = i32(2 * s.tokens(), 1000);
  places.shape = {s.tokens(), 2};
  cases.push_back(s.row("jitter", ops::kJitter, {f32({s.tokens(), s.width}), places},
                        ops::JitterAttrs{.eps = 0.25, .stream = 7}));
  OpCase of_rows = s.row("sample_places", ops::kSamplePlaces, {i32(s.groups, 1000)},
                         ops::SamplePlacesAttrs{.rows = s.rows});
  of_rows.differentiable = {};
  cases.push_back(std::move(of_rows));
}

}  // namespace

void add_routers_rows(std::vector<OpCase>& cases) {
  for (const Sizes& sizes :
       {Sizes{"", 4, 8, 6, 3, 2, 20, 3, false}, Sizes{"_ragged", 1, 13, 5, 4, 3, 301, 5, true},
        Sizes{"_of_all_tokens", 1, 3, 4, 3, 1, 7, 1, true}, Sizes{"_of_one", 1, 1, 1, 1, 1, 1, 1, true}}) {
    add_choice(cases, sizes);
    add_soft(cases, sizes);
    add_levels(cases, sizes);
    add_jitter(cases, sizes);
  }
}

}  // namespace strata::device::op_rows
