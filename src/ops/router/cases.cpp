#include <fmt/core.h>

#include <tuple>

#include "base/random.h"
#include "ops/case_experts.h"
#include "ops/router/router.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::Cast>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    const Operand x = act({s.tokens, s.inputs});
    to.add<ops::Cast>("cast_to_f32" + s.name, {.x = x}, {DType::kF32}, {.ragged = s.ragged});
    // No finite differences of rounded values.
    to.add<ops::Cast>("cast_to_bf16" + s.name, {.x = x}, {DType::kBF16},
                      {.ragged = s.ragged, .differentiable = std::vector<OutputName<ops::Cast>>()});
  }
  to.time<ops::Cast>({.x = timed_rows()}, {DType::kF32});
}

namespace {

using RouterScore = ops::RouteAttrs::Score;

// A token's logits are all far apart, in another order for every token.
Operand router_logits_of(const ExpertSizes& s) {
  return f32_of({s.tokens, s.experts}, [experts = s.experts](int64_t i) {
    const auto rank = static_cast<double>((i % experts * 5 + i / experts * 3) % experts);
    return 0.04 * rank * rank + 0.3 * rank - 1;
  });
}
Operand timed_logits() {
  return f32({kTimedTokens, kTimedExperts});
}

struct RouteForm {
  std::string name;
  Operand bias;
  ops::RouteAttrs attrs;
  Operand tokens = absent();
};
std::vector<RouteForm> route_forms(const ExpertSizes& s) {
  using GroupScore = ops::RouteAttrs::GroupScore;
  // Decides more than scores do.
  const Operand bias =
      constant(f32_of({s.experts}, [](int64_t e) { return static_cast<double>(e * 2 % 3); }));
  std::vector<RouteForm> forms{
      {"", absent(), {.k = s.k}},
      {"_normalized", absent(), {.k = s.k, .normalize = true, .scale = 2.5}},
      {"_sigmoid", absent(), {.k = s.k, .score = RouterScore::kSigmoid, .scale = 0.5}},
      {"_sigmoid_normalized",
       bias,
       {.k = s.k, .score = RouterScore::kSigmoid, .normalize = true, .normalize_eps = 1e-3, .scale = 2.5}},
      {"_biased", bias, {.k = s.k}},
      {"_balanced", absent(), {.k = s.k, .normalize = true, .force_balanced = true}},
      {"_hashed", absent(), {.k = s.k, .normalize = true, .hash_stream = 3}, i32(s.tokens, 1000)}};
  if (s.experts % 4 != 0 || s.k > s.experts / 2) return forms;
  forms.push_back({"_groups", absent(), {.k = s.k, .groups = 4, .kept_groups = 2}});
  forms.push_back(
      {"_groups_sum", absent(), {.k = s.k, .groups = 4, .kept_groups = 2, .group_score = GroupScore::kSum}});
  forms.push_back({"_groups_best_two",
                   bias,
                   {.k = s.k,
                    .score = RouterScore::kSigmoid,
                    .groups = 4,
                    .kept_groups = 2,
                    .group_score = GroupScore::kBestTwo}});
  return forms;
}
constexpr ops::RouteAttrs timed_route(int64_t k) {
  return {.k = k, .normalize = true};
}

// In no order that a processor could guess: the comparisons of a choice take as long as their wrong guesses.
Operand any_logits(int64_t tokens, int64_t experts) {
  return f32_of({tokens, experts}, [](int64_t i) {
    return static_cast<double>(uniform_float(philox({}, static_cast<uint64_t>(i))[0])) - 0.5;
  });
}

}  // namespace

template <>
void cases<ops::Route>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    for (const RouteForm& form : route_forms(s))
      to.add<ops::Route>("route" + form.name + s.name,
                         {.logits = router_logits_of(s), .bias = form.bias, .tokens = form.tokens},
                         form.attrs, {.ragged = s.ragged, .differentiable = {{"weights"}}});
  }
  // With few experts and with more.
  for (const auto& [tokens, experts, k] : {std::tuple{kTimedTokens, kTimedExperts, kTimedSlots},
                                           std::tuple<int64_t, int64_t, int64_t>{256, 32, 8}})
    to.time<ops::Route>({.logits = any_logits(tokens, experts), .bias = absent(), .tokens = absent()},
                        timed_route(k));
}

template <>
void cases<ops::RouteGrad>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    for (const RouteForm& form : route_forms(s))
      to.add<ops::RouteGrad>(
          "route_grad" + form.name + s.name,
          {.dweights = f32({s.tokens, s.k}), .logits = router_logits_of(s), .ids = ids_of(s)}, form.attrs,
          {.ragged = s.ragged});
  }
  to.time<ops::RouteGrad>(
      {.dweights = f32({kTimedTokens, kTimedSlots}), .logits = timed_logits(), .ids = timed_ids()},
      timed_route(kTimedSlots));
}

namespace {

// Activations of experts between their matmuls.
Operand timed_hidden() {
  return act({kTimedTokens * kTimedSlots, kTimedExpertFfn});
}

}  // namespace

template <>
void cases<ops::ScaleRows>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes())
    to.add<ops::ScaleRows>("scale_rows" + s.name,
                           {.x = act({s.tokens * s.k, s.inputs}), .weights = f32({s.tokens, s.k})}, {},
                           {.ragged = s.ragged});
  to.time<ops::ScaleRows>({.x = timed_hidden(), .weights = f32({kTimedTokens, kTimedSlots})});
}

template <>
void cases<ops::ScaleRowsGrad>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    const Operand x = act({s.tokens * s.k, s.inputs});
    to.add<ops::ScaleRowsGrad>("scale_rows_grad" + s.name, {.dy = x, .x = x, .weights = f32({s.tokens, s.k})},
                               {}, {.ragged = s.ragged});
  }
  to.time<ops::ScaleRowsGrad>(
      {.dy = timed_hidden(), .x = timed_hidden(), .weights = f32({kTimedTokens, kTimedSlots})});
}

namespace {

// Calls add(suffix of the name, attributes, groups).
template <typename Add>
void for_sums(const ExpertSizes& s, const Add& add) {
  const auto one = [&](const char* name, const ops::RouterSumsAttrs& attrs) {
    add(name + s.name, attrs, attrs.rows == 0 ? 1 : s.tokens / attrs.rows);
  };
  one("", {RouterScore::kSoftmax, 0});
  one("_sigmoid", {RouterScore::kSigmoid, 0});
  one("_groups", {RouterScore::kSoftmax, s.rows});
  one("_groups_sigmoid", {RouterScore::kSigmoid, s.rows});
  if (!s.ragged && s.rows % 2 == 0) one("_idle", {RouterScore::kSoftmax, s.rows, {s.rows / 2, 1}});
}

}  // namespace

template <>
void cases<ops::RouterSums>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    for_sums(s, [&](const std::string& name, const ops::RouterSumsAttrs& attrs, int64_t) {
      to.add<ops::RouterSums>("router_sums" + name, {.logits = router_logits_of(s), .ids = ids_of(s)}, attrs,
                              {.ragged = s.ragged});
    });
  }
  to.time<ops::RouterSums>({.logits = timed_logits(), .ids = timed_ids()});
}

template <>
void cases<ops::RouterSumsGrad>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    for_sums(s, [&](const std::string& name, const ops::RouterSumsAttrs& attrs, int64_t groups) {
      to.add<ops::RouterSumsGrad>("router_sums_grad" + name,
                                  {.dprobabilities = f32({groups, s.experts}), .logits = router_logits_of(s)},
                                  attrs, {.ragged = s.ragged});
    });
  }
  to.time<ops::RouterSumsGrad>({.dprobabilities = f32({1, kTimedExperts}), .logits = timed_logits()});
}

namespace {

// One group of all tokens cannot be cut.
int64_t balance_groups(const ExpertSizes& s) {
  return s.ragged ? 1 : s.tokens / s.rows;
}

// Calls add(suffix of the name, counts, attributes).
template <typename Add>
void for_balances(const ExpertSizes& s, const Add& add) {
  for (const auto& [name, rows, layers] :
       {std::tuple{"", balance_groups(s), int64_t{1}}, std::tuple{"_same_counts", int64_t{1}, int64_t{3}}}) {
    const int64_t of_group = s.tokens / balance_groups(s);
    const ops::BalanceLossAttrs balance{
        .coefficient = 0.3, .k = s.k, .rows = of_group, .tokens = layers * of_group};
    add(name + s.name,
        constant(f32_of({rows, s.experts}, [](int64_t i) { return static_cast<double>(1 + i * 3 % 7); })),
        balance);
  }
}

}  // namespace

template <>
void cases<ops::BalanceLoss>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    for_balances(s, [&](const std::string& name, const Operand& counts, const ops::BalanceLossAttrs& attrs) {
      to.add<ops::BalanceLoss>("balance_loss" + name,
                               {.probabilities = positive({balance_groups(s), s.experts}),
                                .counts = counts,
                                .targets = targets_of(s)},
                               attrs, {.ragged = s.ragged});
    });
  }
  to.untimed<ops::BalanceLoss>(kFewNumbers);
}

namespace {

// A loss scale.
Operand seed_of_cases() {
  return f32_of({1}, [](int64_t) { return 32.0; });
}

}  // namespace

template <>
void cases<ops::BalanceLossGrad>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    for_balances(s, [&](const std::string& name, const Operand& counts, const ops::BalanceLossAttrs& attrs) {
      to.add<ops::BalanceLossGrad>("balance_loss_grad" + name, {.counts = counts, .targets = targets_of(s)},
                                   attrs, {.ragged = s.ragged});
      to.add<ops::BalanceLossGrad>("balance_loss_grad_seeded" + name,
                                   {.counts = counts, .targets = targets_of(s), .seed = seed_of_cases()},
                                   attrs, {.ragged = s.ragged});
    });
  }
  to.untimed<ops::BalanceLossGrad>(kFewNumbers);
}

namespace {

// Cases of the z-loss, or of its gradient: `end` is appended to the names.
template <typename Op>
void add_z_cases(Cases& to, const std::string& end) {
  for (const ExpertSizes& s : expert_sizes()) {
    const Operand logits = router_logits_of(s);
    to.add<Op>("router_z_loss" + end + s.name, {.logits = logits, .targets = targets_of(s)}, {0.02},
               {.ragged = s.ragged});
    // Sequences of `rows` tokens, each with three targets.
    const Operand others = i32_by(3 * balance_groups(s), [](int64_t i) { return i % 4 == 2 ? -1.0 : 5.0; });
    to.add<Op>("router_z_loss_apart" + end + s.name, {.logits = logits, .targets = others},
               {0.02, s.tokens / balance_groups(s)}, {.ragged = s.ragged});
  }
  to.time<Op>({.logits = timed_logits(), .targets = zeros({kTimedTokens}, DType::kI32)}, {0.001});
}

}  // namespace

template <>
void cases<ops::RouterZLoss>(Cases& to) {
  add_z_cases<ops::RouterZLoss>(to, "");
}

template <>
void cases<ops::RouterZLossGrad>(Cases& to) {
  add_z_cases<ops::RouterZLossGrad>(to, "_grad");
  for (const ExpertSizes& s : expert_sizes()) {
    to.add<ops::RouterZLossGrad>(
        "router_z_loss_grad_seeded" + s.name,
        {.logits = router_logits_of(s), .targets = targets_of(s), .seed = seed_of_cases()}, {0.02},
        {.ragged = s.ragged});
  }
}

}  // namespace strata::device
