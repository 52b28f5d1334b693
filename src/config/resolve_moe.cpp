// [moe] of a run: applies it to a model's experts and validates it.
#include "config/resolve_moe.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "config/objective.h"
#include "ops/expert_dispatch/expert_dispatch.h"

namespace strata::config {
namespace {

// The divisor of the number of experts that is nearest its square root; of two, the smaller.
int64_t middle_divisor(int64_t experts) {
  int64_t best = 1;
  for (int64_t d = 1; d <= experts; ++d) {
    if (experts % d != 0) continue;
    const double root = std::sqrt(static_cast<double>(experts));
    if (std::abs(static_cast<double>(d) - root) < std::abs(static_cast<double>(best) - root)) best = d;
  }
  return best;
}

void apply_router(const RunConfig& config, models::Experts& experts) {
  const MoeTable& moe = config.moe;
  using Own = models::Experts::Router;
  if (experts.count == 0) return;
  if (!moe.router.is_word()) {
    experts.router = *moe.router;
    if (experts.router == Own::kTwoLevel) {
      experts.route.groups = moe.groups.value_or(middle_divisor(experts.count));
      experts.route.kept_groups = moe.kept_groups;
      if (experts.count % experts.route.groups != 0) {
        throw ConfigError("[moe.groups] found {}, expected a divisor of the model's {} experts",
                          experts.route.groups, experts.count);
      }
      const int64_t each = experts.count / experts.route.groups;
      const int64_t least = (experts.route.k + each - 1) / each;
      if (moe.kept_groups < least || moe.kept_groups > experts.route.groups) {
        throw ConfigError(
            "[moe.kept_groups] found {}, but a token selects {} experts from {} groups of {}; expected {} to {}",
            moe.kept_groups, experts.route.k, experts.route.groups, each, least, experts.route.groups);
      }
      experts.route.group_score = ops::RouteAttrs::GroupScore::kSum;
    }
    if (experts.router == Own::kSoft) {
      const int64_t slots = config.training.sequence_length * experts.route.k;
      experts.slots = moe.slots.value_or((slots + experts.count - 1) / experts.count);
    }
  }
  // There is nothing to balance.
  if (experts.router != Own::kTopK && experts.router != Own::kTwoLevel) experts.balance_coefficient = 0;
  if (experts.router == Own::kSoft) experts.z_coefficient = 0;
}

}  // namespace

void apply_moe(const RunConfig& config, models::Experts& experts) {
  const MoeTable& moe = config.moe;
  apply_router(config, experts);
  experts.balance = moe.balance;
  experts.pool_layers = moe.pool_layers;
  experts.balance_coefficient = moe.aux_coef.value_or(experts.balance_coefficient);
  experts.z_coefficient = moe.z_coef.value_or(experts.z_coefficient);
  experts.bias_rate = moe.bias_rate.value_or(experts.bias_rate);
  experts.jitter = moe.jitter.value_or(experts.jitter);
  experts.route.force_balanced = moe.force_balanced;
  layers::MoeSpec::Capacity& capacity = experts.capacity;
  capacity.over_sequence = moe.capacity_over == CapacityOver::kSequence;
  if (!moe.capacity_factor.is_word()) {
    // Nothing is padded, so an expert's need and its bound are one factor, regardless of its sign.
    capacity = {.factor = std::abs(*moe.capacity_factor),
                .least = moe.min_capacity,
                .over_sequence = moe.capacity_over == CapacityOver::kSequence,
                .keep = moe.drop};
  }
  // A family's own bound (Switch) applies to experts that tokens choose.
  if (experts.see_groups()) capacity = {.over_sequence = capacity.over_sequence};
}

namespace {

// Leaking routing must be allowed explicitly.
void check_leaks(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& issues) {
  if (config.model.allow_leaking_routing) return;
  for (const std::string& leak : models::routing_leaks(model)) {
    issues.push_back(
        {"model.allow_leaking_routing", config.origin_of("model.allow_leaking_routing"),
         fmt::format("found false, but the routing leaks: {}; choose a routing that does not, or "
                     "set it to true",
                     leak)});
  }
}

// Rejects settings that the model's router does not use, and routers that a family cannot have.
void check_router(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& issues) {
  using Own = models::Experts::Router;
  const MoeTable& moe = config.moe;
  const MoeTable usual;
  const Own router = model.experts.router;
  const auto report = [&](const char* key, bool is_set, const std::string& problem) {
    if (is_set) issues.push_back({key, config.origin_of(key), problem});
  };
  report("moe.router", router != Own::kTopK && model.experts.router_bias,
         fmt::format("found \"{}\" for {}, whose routers select experts by a bias; leave it out",
                     models::name_of(router), model.family->name));
  const bool groups_of_family = router == Own::kHash && model.experts.route.groups > 1;
  report("moe.router", groups_of_family,
         fmt::format("found \"hash\" for {}, whose routers select groups; leave it out", model.family->name));
  const std::string without = fmt::format(
      "found it for the router \"{}\", which does not use it; leave it out", models::name_of(router));
  const bool levels = moe.router == Own::kTwoLevel;
  report("moe.groups", !levels && !moe.groups.is_word(), without);
  report("moe.kept_groups", !levels && moe.kept_groups != usual.kept_groups, without);
  report("moe.slots", moe.router != Own::kSoft && !moe.slots.is_word(), without);
  const bool balances = router == Own::kTopK || router == Own::kTwoLevel;
  report("moe.aux_coef", !balances && moe.aux_coef.value_or(0) > 0, without);
  report("moe.balance", !balances && moe.balance != usual.balance, without);
  report("moe.pool_layers", !balances && moe.pool_layers, without);
  report("moe.z_coef", router == Own::kSoft && moe.z_coef.value_or(0) > 0, without);
  const bool of_group = !reads_token_by_token(model);
  report("moe.capacity_factor", of_group && moe.capacity_factor.value_or(0) != 0, without);
  report("moe.force_balanced", of_group && moe.force_balanced, without);
}

}  // namespace

namespace {

// How ranks share the model's experts.
void check_shared_experts(const RunConfig& config, const models::Experts& experts,
                          std::vector<Issue>& issues) {
  const ParallelTable& parallel = config.parallel;
  if (parallel.expert > 1 && experts.count % parallel.expert != 0) {
    issues.push_back(
        {"parallel.expert", config.origin_of("parallel.expert"),
         fmt::format(
             "found {} ranks, which cannot share the model's {} experts equally; expected a divisor of them",
             parallel.expert, experts.count)});
  }
  if (std::min(parallel.expert, experts.route.k) > ops::kMostRanksOfToken) {
    issues.push_back({"parallel.expert", config.origin_of("parallel.expert"),
                      fmt::format("found {}, but a token has {} experts; expected at most {} ranks per token",
                                  parallel.expert, experts.route.k, ops::kMostRanksOfToken)});
  }
  if (experts.intermediate_size % parallel.expert_tensor != 0) {
    issues.push_back({"parallel.expert_tensor", config.origin_of("parallel.expert_tensor"),
                      fmt::format("found {}, expected a divisor of an expert's width, {}",
                                  parallel.expert_tensor, experts.intermediate_size)});
  }
}

}  // namespace

void check_moe(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& issues) {
  const MoeTable usual;
  if (model.experts.count > 0) {
    if (!model.experts.router_bias && !config.moe.bias_rate.is_word()) {
      issues.push_back({"moe.bias_rate", config.origin_of("moe.bias_rate"),
                        fmt::format("found it for {}, whose routers have no bias; leave it out (moe.aux_coef "
                                    "balances its experts)",
                                    model.family->name)});
    }
    check_shared_experts(config, model.experts, issues);
    check_router(config, model, issues);
    check_leaks(config, model, issues);
    if (!config.moe.capacity_factor.is_word() && model.experts.capacity.bounds()) return;
    const auto without_limit = [&](const char* key, bool is_set) {
      if (!is_set) return;
      issues.push_back(
          {key, config.origin_of(key),
           "found it without a limit on experts' capacity; set moe.capacity_factor, or leave it out"});
    };
    without_limit("moe.min_capacity", config.moe.min_capacity != usual.min_capacity);
    without_limit("moe.drop", config.moe.drop != usual.drop);
    without_limit("moe.capacity_over",
                  reads_token_by_token(model) && config.moe.capacity_over != usual.capacity_over);
    return;
  }
  const auto check = [&](const char* key, bool is_set) {
    if (!is_set) return;
    issues.push_back(
        {key, config.origin_of(key),
         fmt::format("found it for {}, which has no experts; leave it out", model.family->name)});
  };
  check("moe.router", config.moe.router != usual.router);
  check("moe.groups", !config.moe.groups.is_word());
  check("moe.kept_groups", config.moe.kept_groups != usual.kept_groups);
  check("moe.slots", !config.moe.slots.is_word());
  check("moe.balance", config.moe.balance != usual.balance);
  check("moe.pool_layers", config.moe.pool_layers);
  check("moe.aux_coef", !config.moe.aux_coef.is_word());
  check("moe.z_coef", !config.moe.z_coef.is_word());
  check("moe.bias_rate", !config.moe.bias_rate.is_word());
  check("moe.jitter", !config.moe.jitter.is_word());
  check("moe.force_balanced", config.moe.force_balanced);
  check("moe.capacity_factor", !config.moe.capacity_factor.is_word());
  check("moe.min_capacity", config.moe.min_capacity != usual.min_capacity);
  check("moe.drop", config.moe.drop != usual.drop);
  check("moe.capacity_over", config.moe.capacity_over != usual.capacity_over);
  check("parallel.expert", config.parallel.expert != 1);
  check("parallel.expert_tensor", config.parallel.expert_tensor != 1);
  check("parallel.dispatch", !config.parallel.dispatch.is_word());
  check("parallel.expert_capacity", !config.parallel.expert_capacity.is_word());
}

}  // namespace strata::config
