// [moe] of a run: what it makes of a model's experts, and what is wrong with it.
#include "config/resolve_moe.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "config/objective.h"
#include "ops/expert_dispatch/expert_dispatch.h"

namespace strata::config {
namespace {

// The divisor of the experts that is nearest their root, the smaller of two.
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
        throw ConfigError("[moe.groups] found {}, and the model has {} experts; expected a divisor of them",
                          experts.route.groups, experts.count);
      }
      const int64_t each = experts.count / experts.route.groups;
      const int64_t least = (experts.route.k + each - 1) / each;
      if (moe.kept_groups < least || moe.kept_groups > experts.route.groups) {
        throw ConfigError(
            "[moe.kept_groups] found {}, and a token goes to {} experts, of {} groups of {}; expected {} to "
            "{}",
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
    // Nothing is padded: what an expert needs and the bound of it are one factor, whatever its sign.
    capacity = {.factor = std::abs(*moe.capacity_factor),
                .least = moe.min_capacity,
                .over_sequence = moe.capacity_over == CapacityOver::kSequence,
                .keep = moe.drop};
  }
  // A family's own bound (Switch) is one of experts that tokens choose.
  if (experts.see_groups()) capacity = {.over_sequence = capacity.over_sequence};
}

namespace {

// What a run must say that it knows.
void check_leaks(const RunConfig& config, const models::ModelConfig& model, std::vector<Fault>& faults) {
  if (config.model.allow_leaking_routing) return;
  for (const std::string& leak : models::routing_leaks(model)) {
    faults.push_back(
        {"model.allow_leaking_routing", config.origin_of("model.allow_leaking_routing"),
         fmt::format("found false, and the routing leaks: {}; choose a routing that does not, or "
                     "set it to true",
                     leak)});
  }
}

// Settings that the router of a model has no use for, and routers that a family cannot have.
void check_router(const RunConfig& config, const models::ModelConfig& model, std::vector<Fault>& faults) {
  using Own = models::Experts::Router;
  const MoeTable& moe = config.moe;
  const MoeTable usual;
  const Own router = model.experts.router;
  const auto fault = [&](const char* key, bool is_set, const std::string& problem) {
    if (is_set) faults.push_back({key, config.origin_of(key), problem});
  };
  fault("moe.router", router != Own::kTopK && model.experts.router_bias,
        fmt::format("found \"{}\" for {}, whose routers choose by a bias; leave it out",
                    models::name_of(router), model.family->name));
  const bool groups_of_family = router == Own::kHash && model.experts.route.groups > 1;
  fault("moe.router", groups_of_family,
        fmt::format("found \"hash\" for {}, whose routers choose groups; leave it out", model.family->name));
  const std::string without =
      fmt::format("found it for a router that is \"{}\"; leave it out", models::name_of(router));
  const bool levels = moe.router == Own::kTwoLevel;
  fault("moe.groups", !levels && !moe.groups.is_word(), without);
  fault("moe.kept_groups", !levels && moe.kept_groups != usual.kept_groups, without);
  fault("moe.slots", moe.router != Own::kSoft && !moe.slots.is_word(), without);
  const bool balances = router == Own::kTopK || router == Own::kTwoLevel;
  fault("moe.aux_coef", !balances && moe.aux_coef.value_or(0) > 0, without);
  fault("moe.balance", !balances && moe.balance != usual.balance, without);
  fault("moe.pool_layers", !balances && moe.pool_layers, without);
  fault("moe.z_coef", router == Own::kSoft && moe.z_coef.value_or(0) > 0, without);
  const bool of_group = !reads_token_by_token(model);
  fault("moe.capacity_factor", of_group && moe.capacity_factor.value_or(0) != 0, without);
  fault("moe.force_balanced", of_group && moe.force_balanced, without);
}

}  // namespace

namespace {

// How ranks share experts that the model has.
void check_shared_experts(const RunConfig& config, const models::Experts& experts,
                          std::vector<Fault>& faults) {
  const ParallelTable& parallel = config.parallel;
  if (parallel.expert > 1 && experts.count % parallel.expert != 0) {
    faults.push_back(
        {"parallel.expert", config.origin_of("parallel.expert"),
         fmt::format("found {}, and the model has {} experts, which so many ranks cannot share equally; "
                     "expected a divisor of them",
                     parallel.expert, experts.count)});
  }
  if (std::min(parallel.expert, experts.route.k) > ops::kMostRanksOfToken) {
    faults.push_back(
        {"parallel.expert", config.origin_of("parallel.expert"),
         fmt::format("found {}, and a token has {} experts; expected at most {} ranks that a token "
                     "goes to",
                     parallel.expert, experts.route.k, ops::kMostRanksOfToken)});
  }
  if (experts.intermediate_size % parallel.expert_tensor != 0) {
    faults.push_back({"parallel.expert_tensor", config.origin_of("parallel.expert_tensor"),
                      fmt::format("found {}, and an expert is {} wide; expected a divisor of it",
                                  parallel.expert_tensor, experts.intermediate_size)});
  }
}

}  // namespace

void check_moe(const RunConfig& config, const models::ModelConfig& model, std::vector<Fault>& faults) {
  const MoeTable usual;
  if (model.experts.count > 0) {
    if (!model.experts.router_bias && !config.moe.bias_rate.is_word()) {
      faults.push_back({"moe.bias_rate", config.origin_of("moe.bias_rate"),
                        fmt::format("found it for {}, whose routers have no bias; leave it out, moe.aux_coef "
                                    "balances its experts",
                                    model.family->name)});
    }
    check_shared_experts(config, model.experts, faults);
    check_router(config, model, faults);
    check_leaks(config, model, faults);
    if (!config.moe.capacity_factor.is_word() && model.experts.capacity.bounds()) return;
    const auto without_room = [&](const char* key, bool is_set) {
      if (!is_set) return;
      faults.push_back(
          {key, config.origin_of(key),
           "found it without a bound of experts' room; set moe.capacity_factor, or leave it out"});
    };
    without_room("moe.min_capacity", config.moe.min_capacity != usual.min_capacity);
    without_room("moe.drop", config.moe.drop != usual.drop);
    without_room("moe.capacity_over",
                 reads_token_by_token(model) && config.moe.capacity_over != usual.capacity_over);
    return;
  }
  const auto check = [&](const char* key, bool is_set) {
    if (!is_set) return;
    faults.push_back(
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
