// Rows of a mixture of experts.
#include <fmt/core.h>

#include <limits>

#include "ops/case_operands.h"
#include "ops/capacity.h"
#include "ops/expert_parallel.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/router.h"

namespace strata::device::op_rows {
namespace {

using ops::RouteAttrs;
using Score = RouteAttrs::Score;

struct Sizes {
  std::string name;
  int64_t tokens, k, experts, inputs, outputs, rows;  // rows: tokens of a group
  bool ragged;

  OpCase row(const std::string& op_name, const graph::OpDef& op, std::vector<Operand> operands,
             graph::Attributes attrs = {}, std::vector<int> differentiable = {0}) const {
    return case_of(op_name + name, op, std::move(operands), std::move(attrs), ragged,
                   std::move(differentiable));
  }
};

// Every token goes to one expert, whose rows are many, and to k − 1 of a few others; the rest have none.
Operand ids_of(const Sizes& s) {
  const int64_t hub = 2 * s.experts / 3;
  std::vector<int64_t> others;
  for (int64_t e = 2; e < s.experts; e += 2)
    if (e != hub) others.push_back(e);
  if (static_cast<int64_t>(others.size()) < s.k - 1) {
    others.clear();
    for (int64_t e = 0; e < s.experts; ++e)
      if (e != hub) others.push_back(e);
  }
  return {.dtype = DType::kI32, .shape = {s.tokens, s.k}, .content = [k = s.k, hub, others](int64_t i) {
            const int64_t token = i / k, slot = i % k;
            if (slot == token % k) return static_cast<double>(hub);
            const int64_t other = token * 5 + (slot + k - token % k) % k - 1;
            return static_cast<double>(others[static_cast<size_t>(other) % others.size()]);
          }};
}

// The same where every fourth token, and here and there another slot, has been dropped.
Operand ids_with_dropped(const Sizes& s) {
  Operand ids = ids_of(s);
  ids.content = [k = s.k, all = ids.content](int64_t i) {
    const int64_t token = i / k;
    return token % 4 == 1 || i % 5 == 3 ? -1.0 : all(i);
  };
  return ids;
}

// A token's logits are all far apart, in another order for every token.
Operand logits_of(const Sizes& s) {
  return f32_of({s.tokens, s.experts}, [experts = s.experts](int64_t i) {
    const auto rank = static_cast<double>((i % experts * 5 + i / experts * 3) % experts);
    return 0.04 * rank * rank + 0.3 * rank - 1;
  });
}

// Every third token has no target.
Operand targets_of(const Sizes& s) {
  return i32_by(s.tokens, [](int64_t i) { return i % 3 == 2 ? -1.0 : static_cast<double>(i); });
}

// Products of all slots of the tokens; with offsets, of any number of slots a token.
void add_products(std::vector<OpCase>& cases, Sizes s, bool offsets) {
  const ops::ExpertsAttrs attrs{s.experts};
  const int64_t slots = s.tokens * s.k;
  Operand ids = ids_of(s), begins = absent();
  const Operand w = f32({s.experts * s.outputs, s.inputs});
  if (offsets) {
    s.name = "_of_ranks" + s.name;
    s.ragged = true;  // no axis splits them
    ids.shape = {slots, 1};
    // Token t has t mod (k + 1) slots: none, some, all; and no token has the last ones.
    std::vector<int64_t> sums{0};
    for (int64_t token = 0; token < s.tokens; ++token) sums.push_back(sums.back() + token % (s.k + 1));
    begins = i32_of(sums);
  }
  const Operand x = act({s.tokens, s.inputs}), h = act({slots, s.inputs});
  const Operand y = act({s.tokens, s.outputs}), y_of_slots = act({slots, s.outputs});
  const Operand bias = f32({s.experts * s.outputs});
  const Operand weights = offsets ? f32({slots}) : f32({s.tokens, s.k});
  for (const bool dropped : {false, true}) {
    if (dropped && offsets) break;
    if (dropped) ids = ids_with_dropped(s);
    const auto row = [&](const char* name, const graph::OpDef& op, std::vector<Operand> operands) {
      cases.push_back(s.row(std::string(name) + (dropped ? "_dropped" : ""), op, std::move(operands), attrs));
    };
    row("experts_in", ops::kExpertsIn, {x, ids, w, begins});
    row("experts_in_grad_input", ops::kExpertsInGradInput, {y_of_slots, ids, w, begins});
    row("experts_in_grad_weight", ops::kExpertsInGradWeight, {y_of_slots, x, ids, begins});
    row("experts_out", ops::kExpertsOut, {h, ids, w, begins});
    row("experts_out_grad_input", ops::kExpertsOutGradInput, {y, ids, w, begins});
    row("experts_out_grad_weight", ops::kExpertsOutGradWeight, {y, h, ids, begins});
    row("expert_bias", ops::kExpertBias, {y_of_slots, ids, absent(), bias, begins});
    row("expert_bias_weighted", ops::kExpertBias, {y, ids, weights, bias, begins});
    row("expert_bias_grad", ops::kExpertBiasGrad, {y_of_slots, ids, absent(), begins});
    row("expert_bias_grad_weighted", ops::kExpertBiasGrad, {y, ids, weights, begins});
    row("expert_bias_grad_weights", ops::kExpertBiasGradWeights, {y, ids, bias, begins});
  }
  if (offsets) return;
  ids = ids_of(s);
  cases.push_back(s.row("expert_counts", ops::kExpertCounts, {ids, absent()}, attrs, {}));
  const Operand counts{.dtype = DType::kI64, .shape = {s.experts}, .content = [](int64_t e) {
                         return static_cast<double>(64 * (e * 1000 % 77));
                       }};
  cases.push_back(s.row("running_counts", ops::kRunningCounts, {counts}, {}, {}));
  cases.push_back(s.row("expert_counts_of_targets", ops::kExpertCounts, {ids, targets_of(s)}, attrs, {}));
  cases.push_back(
      s.row("expert_counts_of_kept", ops::kExpertCounts, {ids_with_dropped(s), targets_of(s)}, attrs, {}));
}

// Gated experts, as one rank has them of `ranks`.
std::shared_ptr<const ops::ExpertBody> body_of(const Sizes& s, int64_t rows, int64_t slots) {
  using graph::ParameterRole;
  ops::ExpertBodySpec spec{.rows = rows, .slots = slots, .width = s.inputs, .trains = true};
  spec.parameters = [s](graph::Graph& graph) {
    return std::vector{
        graph.add_parameter("up", ParameterRole::kExpertIn, {s.experts * 2 * s.outputs, s.inputs}, {}, {},
                            std::vector(static_cast<size_t>(2 * s.experts), s.outputs)),
        graph.add_parameter("down", ParameterRole::kExpertOut, {s.experts * s.inputs, s.outputs}, {})};
  };
  spec.build = [experts = s.experts](graph::Graph& graph, const ops::ExpertInputs& in) {
    const auto up = ops::experts_in(graph, in.rows, in.ids, in.parameters[0], experts, in.offsets);
    const auto hidden = ops::scale_rows(graph, ops::gated(graph, up, ActivationKind::kSilu), in.weights);
    return ops::experts_out(graph, hidden, in.ids, in.parameters[1], experts, in.offsets);
  };
  return ops::make_expert_body(spec);
}

// One rank with all experts, and what the first round has left where all tokens are of it. `share`: of them
// that a round has room for.
void add_shared_experts(std::vector<OpCase>& cases, const Sizes& s, double share) {
  const auto part = [share](int64_t n) {
    return std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(n)));
  };
  const ops::ExpertRoom room{part(s.tokens), std::max(s.k, part(s.tokens * s.k))};
  const auto body = body_of(s, room.rows, room.slots);
  const ops::ExpertParallelAttrs attrs{
      .body = body, .tokens = s.tokens, .k = s.k, .experts = s.experts, .room = room};
  std::vector<Operand> inputs{f32({s.tokens, s.inputs}), ids_of(s), f32({s.tokens, s.k}),
                              f32({s.experts * 2 * s.outputs, s.inputs}),
                              f32({s.experts * s.inputs, s.outputs})};
  const auto row = [&](const char* name, const graph::OpDef& op, std::vector<Operand> operands) {
    OpCase one = s.row(name, op, std::move(operands), attrs);
    if (share < 1) one.name += "_in_rounds";
    one.ragged = true;  // no axis of the mesh of a case cuts it
    return one;
  };
  cases.push_back(row("expert_parallel", ops::kExpertParallel, inputs));
  for (int kept = 0; kept < static_cast<int>(body->kept.size()) + 1; ++kept)
    cases.back().opaque.push_back(ops::ExpertParallel::kEnd + kept);
  if (share < 1) return;
  const auto all_of = [&](const std::vector<ops::ValueId>& values) {
    std::vector<Operand> operands;
    for (const auto value : values) {
      const graph::Value& of = body->graph.value(value);
      Operand operand = f32(of.shape, of.segments);
      if (value == body->inputs.ids) {
        operand = ids_of(s);
        operand.shape = of.shape;
      } else if (value == body->inputs.offsets) {
        operand = i32_by(s.tokens + 1, [k = s.k](int64_t i) { return static_cast<double>(i * k); });
      }
      operands.push_back(std::move(operand));
    }
    return operands;
  };
  inputs.insert(inputs.begin(), f32({s.tokens, s.inputs}));
  inputs.insert(inputs.begin() + ops::ExpertParallelGrad::kEnd, i32_of({s.tokens, 0}));
  const auto with = [&](std::initializer_list<const std::vector<ops::ValueId>*> lists) {
    std::vector<Operand> operands = inputs;
    for (const auto* list : lists) {
      for (Operand& operand : all_of(*list)) operands.push_back(std::move(operand));
    }
    return operands;
  };
  cases.push_back(row("expert_parallel_grad_input", ops::kExpertParallelGradInput, with({&body->kept})));
  cases.push_back(row("expert_parallel_grad_weight", ops::kExpertParallelGradWeight,
                      with({&body->kept_for_weights, &body->handed})));
}

// Eight ranks' experts, of which this is one.
void add_own_experts(std::vector<OpCase>& cases, const Sizes& s) {
  cases.push_back(s.row("expert_rounds", ops::kExpertRounds, {i32_of({5, 3, 7, 2, 4, 0, 1, 1})}, {}, {}));
  if (s.experts % 4 != 0) return;
  for (const bool first_is_summed : {false, true}) {
    OpCase one = s.row(first_is_summed ? "own_experts_of_the_last" : "own_experts", ops::kOwnExperts,
                       {ids_of(s), rank_at({{Axis::kShard, 1}, {Axis::kContext, 1}})},
                       ops::OwnExpertsAttrs{.axes = {{Axis::kShard, 2, first_is_summed},
                                                     {Axis::kContext, 2, !first_is_summed}},
                                            .experts = s.experts},
                       {});
    one.ragged = true;  // no axis of the mesh of a case cuts it
    cases.push_back(one);
  }
}

void add_routes(std::vector<OpCase>& cases, const Sizes& s) {
  const Operand logits = logits_of(s), given = f32({s.tokens, s.k});
  // Decides more than scores do.
  const Operand bias =
      constant(f32_of({s.experts}, [](int64_t e) { return static_cast<double>(e * 2 % 3); }));
  struct Form {
    std::string name;
    Operand bias;
    RouteAttrs attrs;
    Operand tokens = absent();
  };
  std::vector<Form> forms{
      {"", absent(), {.k = s.k}},
      {"_normalized", absent(), {.k = s.k, .normalize = true, .scale = 2.5}},
      {"_sigmoid", absent(), {.k = s.k, .score = Score::kSigmoid, .scale = 0.5}},
      {"_sigmoid_normalized",
       bias,
       {.k = s.k, .score = Score::kSigmoid, .normalize = true, .normalize_eps = 1e-3, .scale = 2.5}},
      {"_biased", bias, {.k = s.k}},
      {"_balanced", absent(), {.k = s.k, .normalize = true, .force_balanced = true}}};
  if (s.experts % 4 == 0 && s.k <= s.experts / 2) {
    forms.push_back({"_groups", absent(), {.k = s.k, .groups = 4, .kept_groups = 2}});
    forms.push_back({"_groups_sum",
                     absent(),
                     {.k = s.k, .groups = 4, .kept_groups = 2, .group_score = RouteAttrs::GroupScore::kSum}});
    forms.push_back({"_groups_best_two",
                     bias,
                     {.k = s.k,
                      .score = Score::kSigmoid,
                      .groups = 4,
                      .kept_groups = 2,
                      .group_score = RouteAttrs::GroupScore::kBestTwo}});
  }
  forms.push_back(
      {"_hashed", absent(), {.k = s.k, .normalize = true, .hash_stream = 3}, i32(s.tokens, 1000)});
  for (const Form& form : forms) {
    cases.push_back(s.row("route" + form.name, ops::kRoute, {logits, form.bias, form.tokens}, form.attrs,
                          {ops::Route::kWeights}));
    cases.push_back(s.row("route_grad" + form.name, ops::kRouteGrad, {given, logits, ids_of(s)}, form.attrs));
  }
}

void add_capacities(std::vector<OpCase>& cases, const Sizes& s) {
  using Keep = ops::CapacityAttrs::Keep;
  // Many of the same weight, and none that is a number here and there.
  const Operand weights = f32_of({s.tokens, s.k}, [](int64_t i) {
    return i % 11 == 7 ? std::numeric_limits<double>::quiet_NaN() : 0.1 * static_cast<double>(i * 5 % 7);
  });
  const Operand begins = i32_by(s.tokens, [rows = s.rows](int64_t i) {
    return static_cast<double>(i % rows < rows / 2 ? 0 : rows / 2);
  });
  for (const int64_t capacity : {int64_t{1}, std::max<int64_t>(2, s.rows / 2)}) {
    const auto add = [&](const char* name, Keep keep, const Operand& documents) {
      cases.push_back(s.row(
          fmt::format("limit_experts_{}_{}", capacity, name), ops::kLimitExperts,
          {ids_of(s), weights, documents},
          ops::CapacityAttrs{.experts = s.experts, .rows = s.rows, .capacity = capacity, .keep = keep}, {}));
    };
    add("first", Keep::kFirst, absent());
    add("first_of_documents", Keep::kFirst, begins);
    add("greatest", Keep::kGreatest, absent());
    if (s.ragged || s.rows % 2 != 0) continue;
    for (const auto& [name, keep] : {std::pair{"first", Keep::kFirst}, {"greatest", Keep::kGreatest}}) {
      cases.push_back(s.row(fmt::format("limit_experts_{}_{}_idle", capacity, name), ops::kLimitExperts,
                            {ids_of(s), weights, absent()},
                            ops::CapacityAttrs{.experts = s.experts,
                                               .rows = s.rows,
                                               .capacity = capacity,
                                               .keep = keep,
                                               .idle = {s.rows / 2, 1}},
                            {}));
    }
  }
  cases.push_back(s.row("weights_of_kept", ops::kWeightsOfKept, {f32({s.tokens, s.k}), ids_with_dropped(s)}));
}

void add_balance(std::vector<OpCase>& cases, const Sizes& s) {
  const Operand logits = logits_of(s), targets = targets_of(s);
  for (const auto& [name, score, rows] :
       {std::tuple{"", Score::kSoftmax, int64_t{0}}, std::tuple{"_sigmoid", Score::kSigmoid, int64_t{0}},
        std::tuple{"_groups", Score::kSoftmax, s.rows},
        std::tuple{"_groups_sigmoid", Score::kSigmoid, s.rows}}) {
    const ops::RouterSumsAttrs attrs{score, rows};
    const int64_t groups = rows == 0 ? 1 : s.tokens / rows;
    cases.push_back(s.row(fmt::format("router_sums{}", name), ops::kRouterSums, {logits, ids_of(s)}, attrs));
    cases.push_back(s.row(fmt::format("router_sums_grad{}", name), ops::kRouterSumsGrad,
                          {f32({groups, s.experts}), logits}, attrs));
  }
  if (!s.ragged && s.rows % 2 == 0) {
    const ops::RouterSumsAttrs idle{Score::kSoftmax, s.rows, {s.rows / 2, 1}};
    cases.push_back(s.row("router_sums_idle", ops::kRouterSums, {logits, ids_of(s)}, idle));
    cases.push_back(s.row("router_sums_grad_idle", ops::kRouterSumsGrad,
                          {f32({s.tokens / s.rows, s.experts}), logits}, idle));
  }
  // One group of all tokens cannot be cut.
  const int64_t groups = s.ragged ? 1 : s.tokens / s.rows;
  for (const auto& [name, rows, layers] :
       {std::tuple{"", groups, int64_t{1}}, std::tuple{"_same_counts", int64_t{1}, int64_t{3}}}) {
    const int64_t of_group = s.tokens / groups;
    const ops::BalanceLossAttrs balance{
        .coefficient = 0.3, .k = s.k, .rows = of_group, .tokens = layers * of_group};
    const Operand counts =
        constant(f32_of({rows, s.experts}, [](int64_t i) { return static_cast<double>(1 + i * 3 % 7); }));
    cases.push_back(s.row(fmt::format("balance_loss{}", name), ops::kBalanceLoss,
                          {positive({groups, s.experts}), counts, targets}, balance));
    cases.push_back(
        s.row(fmt::format("balance_loss_grad{}", name), ops::kBalanceLossGrad, {counts, targets}, balance));
  }
  const ops::ZLossAttrs z{0.02};
  cases.push_back(s.row("router_z_loss", ops::kRouterZLoss, {logits, targets}, z));
  cases.push_back(s.row("router_z_loss_grad", ops::kRouterZLossGrad, {logits, targets}, z));
  // Of sequences of `rows` tokens, each with three targets.
  const ops::ZLossAttrs apart{0.02, s.tokens / groups};
  const Operand others = i32_by(3 * groups, [](int64_t i) { return i % 4 == 2 ? -1.0 : 5.0; });
  cases.push_back(s.row("router_z_loss_apart", ops::kRouterZLoss, {logits, others}, apart));
  cases.push_back(s.row("router_z_loss_apart_grad", ops::kRouterZLossGrad, {logits, others}, apart));
}

void add_row_scales(std::vector<OpCase>& cases, const Sizes& s) {
  const Operand x = act({s.tokens * s.k, s.inputs}), weights = f32({s.tokens, s.k});
  cases.push_back(s.row("scale_rows", ops::kScaleRows, {x, weights}));
  cases.push_back(s.row("scale_rows_grad", ops::kScaleRowsGrad, {x, x, weights}));
  cases.push_back(s.row("cast_to_f32", ops::kCast, {act({s.tokens, s.inputs})}, ops::CastAttrs{DType::kF32}));
  // No differences of what is rounded.
  cases.push_back(
      s.row("cast_to_bf16", ops::kCast, {act({s.tokens, s.inputs})}, ops::CastAttrs{DType::kBF16}, {}));
}

}  // namespace

void add_experts_rows(std::vector<OpCase>& cases) {
  for (const Sizes& sizes :
       {Sizes{"", 32, 2, 8, 20, 12, 4, false}, Sizes{"_ragged", 37, 3, 7, 71, 13, 37, true},
        Sizes{"_of_every_expert", 9, 3, 3, 33, 50, 3, true},
        Sizes{"_of_one_expert", 6, 1, 1, 1, 1, 2, true}}) {
    for (const bool offsets : {false, true}) add_products(cases, sizes, offsets);
    for (const double share : {1.0, 0.4}) add_shared_experts(cases, sizes, share);
    add_own_experts(cases, sizes);
    add_routes(cases, sizes);
    add_capacities(cases, sizes);
    add_balance(cases, sizes);
    add_row_scales(cases, sizes);
  }
}

}  // namespace strata::device::op_rows
