// Routers beyond those of the families, and which of them are causal.
#include <array>

#include "base/error.h"
#include "base/json.h"
#include "models/config_json.h"
#include "models/model.h"

namespace strata::models {
namespace {

using Router = Experts::Router;

constexpr std::array kRouterNames{std::pair{Router::kTopK, "top_k"}, std::pair{Router::kHash, "hash"},
                                  std::pair{Router::kTwoLevel, "two_level"},
                                  std::pair{Router::kExpertChoice, "expert_choice"},
                                  std::pair{Router::kSoft, "soft"}};

}  // namespace

std::string_view name_of(Router router) {
  for (const auto& [known, name] : kRouterNames)
    if (known == router) return name;
  return "";
}

void read_own_router(const std::string& text, const std::string& where, Experts& experts) {
  const ConfigJson json(text, where);
  if (!json.has("strata_router")) return;
  const ConfigJson router(dump_json(parse_json<nlohmann::json>(text)["strata_router"]),
                          where + ", strata_router");
  const std::string kind = router.text_or("kind", "");
  for (const auto& [known, name] : kRouterNames)
    if (kind == name) experts.router = known;
  if (kind != name_of(experts.router))
    throw DataError(
        "[{}] strata_router has kind \"{}\": expected top_k, hash, two_level, expert_choice or soft", where,
        kind);
  if (experts.see_groups()) experts.capacity = {};
  if (experts.router == Router::kSoft) experts.slots = router.integer("slots");
  if (experts.router == Router::kTwoLevel) {
    experts.route.groups = router.integer("groups");
    experts.route.kept_groups = router.integer("kept_groups");
    experts.route.group_score = ops::RouteAttrs::GroupScore::kSum;
  }
}

std::string with_own_router(const std::string& text, const Experts& experts) {
  if (experts.count == 0 || experts.router == Router::kTopK) return text;
  auto json = parse_json<nlohmann::ordered_json>(text);
  json["model_type"] = std::string(kOwnRouterPrefix) + json["model_type"].get<std::string>();
  auto& router = json["strata_router"];
  router["kind"] = name_of(experts.router);
  if (experts.router == Router::kSoft) router["slots"] = experts.slots;
  if (experts.router == Router::kTwoLevel) {
    router["groups"] = experts.route.groups;
    router["kept_groups"] = experts.route.kept_groups;
  }
  return dump_json(json, 2) + "\n";
}

std::vector<std::string> routing_leaks(const ModelConfig& config) {
  std::vector<std::string> leaks;
  const Experts& experts = config.experts;
  if (experts.count == 0) return leaks;
  if (experts.router == Router::kExpertChoice) {
    leaks.emplace_back(
        "experts choose their tokens (moe.router): a later token takes the place of an earlier one");
  }
  if (experts.router == Router::kSoft) {
    leaks.emplace_back("experts read means over all tokens (moe.router), including later ones");
  }
  const layers::MoeSpec::Capacity& capacity = experts.capacity;
  if (!capacity.bounds()) return leaks;
  if (capacity.keep == ops::CapacityAttrs::Keep::kGreatest) {
    leaks.emplace_back(
        "token-expert pairs are dropped by probability (moe.drop): a later token takes the place of an "
        "earlier one");
  }
  if (!capacity.over_sequence) {
    leaks.emplace_back(
        "an expert's capacity is shared by the micro-batch (moe.capacity_over): a sequence takes the place "
        "of others");
  }
  return leaks;
}

}  // namespace strata::models
