#include "train/journal.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"

namespace strata::training {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kEffectNames{"jump", "ease_lr", "shrink_embedding", "set", "batch"};

OrderedJson effect_json(const Effect& effect) {
  OrderedJson json;
  json["step"] = effect.step;
  json["what"] = kEffectNames[static_cast<size_t>(effect.kind)];
  switch (effect.kind) {
    case Effect::Kind::kJump:
      json["next_sample"] = effect.next_sample;
      break;
    case Effect::Kind::kEaseLr:
    case Effect::Kind::kShrinkEmbedding:
      json["factor"] = effect.factor;
      json["for_steps"] = effect.for_steps;
      break;
    case Effect::Kind::kSet:
      json["key"] = effect.key;
      json["value"] = effect.value;
      json["by"] = effect.by;
      break;
    case Effect::Kind::kBatch:
      json["sequences"] = effect.sequences;
      break;
  }
  return json;
}

Effect effect_from(const nlohmann::json& json, const std::string& where) {
  Effect effect;
  json.at("step").get_to(effect.step);
  const auto name = json.at("what").get<std::string>();
  const auto found = std::find(kEffectNames.begin(), kEffectNames.end(), name);
  if (found == kEffectNames.end())
    throw DataError("[{}] the journal has an unknown entry \"{}\"", where, name);
  effect.kind = static_cast<Effect::Kind>(found - kEffectNames.begin());
  switch (effect.kind) {
    case Effect::Kind::kJump:
      json.at("next_sample").get_to(effect.next_sample);
      break;
    case Effect::Kind::kEaseLr:
    case Effect::Kind::kShrinkEmbedding:
      json.at("factor").get_to(effect.factor);
      json.at("for_steps").get_to(effect.for_steps);
      break;
    case Effect::Kind::kSet:
      json.at("key").get_to(effect.key);
      json.at("value").get_to(effect.value);
      json.at("by").get_to(effect.by);
      break;
    case Effect::Kind::kBatch:
      json.at("sequences").get_to(effect.sequences);
      break;
  }
  if (effect.step < 0 || effect.next_sample < 0 || effect.for_steps < 0 || effect.sequences < 0)
    throw DataError("[{}] the journal has a negative number in \"{}\"", where, name);
  return effect;
}

template <typename T>
void put(OrderedJson& json, const char* name, const std::optional<T>& value) {
  if (value) json[name] = *value;
}
template <typename T>
void take(const nlohmann::json& json, const char* name, std::optional<T>& value) {
  if (json.contains(name)) value = json.at(name).get<T>();
}

// JSON has no infinity and no NaN.
OrderedJson number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson();
}
double number_from(const nlohmann::json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

OrderedJson intervention_json(const Intervention& one) {
  OrderedJson json;
  json["at_step"] = one.at_step;
  json["rule"] = one.rule;
  json["action"] = one.action;
  json["measured"] = number(one.measured);
  json["limit"] = number(one.limit);
  put(json, "to_step", one.to_step);
  put(json, "first_skipped", one.first_skipped);
  put(json, "last_skipped", one.last_skipped);
  put(json, "factor", one.factor);
  put(json, "for_steps", one.for_steps);
  return json;
}

Intervention intervention_from(const nlohmann::json& json) {
  Intervention one;
  json.at("at_step").get_to(one.at_step);
  json.at("rule").get_to(one.rule);
  json.at("action").get_to(one.action);
  one.measured = number_from(json.at("measured"));
  one.limit = number_from(json.at("limit"));
  take(json, "to_step", one.to_step);
  take(json, "first_skipped", one.first_skipped);
  take(json, "last_skipped", one.last_skipped);
  take(json, "factor", one.factor);
  take(json, "for_steps", one.for_steps);
  return one;
}

}  // namespace

bool Journal::has(const Intervention& intervention) const {
  // A measured value may be NaN, which equals nothing.
  const auto same = [&](const Intervention& one) {
    return one.at_step == intervention.at_step && one.rule == intervention.rule &&
           one.action == intervention.action && one.to_step == intervention.to_step &&
           one.first_skipped == intervention.first_skipped;
  };
  return std::any_of(interventions_.begin(), interventions_.end(), same);
}

bool Journal::add(const Intervention& intervention) {
  const bool is_new = intervention.to_step && intervention.rule == "corruption";
  if (!is_new && has(intervention)) return false;
  interventions_.push_back(intervention);
  return true;
}

void Journal::undo_after(int64_t step, int64_t from) {
  lost_steps_ += from - step;
  std::erase_if(effects_, [&](const Effect& effect) {
    return effect.step > step && effect.kind != Effect::Kind::kSet;
  });
  for (Effect& effect : effects_) effect.step = std::min(effect.step, step);
}

std::optional<int64_t> Journal::jump_at(int64_t completed_steps) const {
  std::optional<int64_t> found;
  for (const Effect& effect : effects_)
    if (effect.kind == Effect::Kind::kJump && effect.step == completed_steps) found = effect.next_sample;
  return found;
}

std::optional<int64_t> Journal::batch_at(int64_t completed_steps) const {
  std::optional<int64_t> found;
  for (const Effect& effect : effects_)
    if (effect.kind == Effect::Kind::kBatch && effect.step <= completed_steps) found = effect.sequences;
  return found;
}

std::vector<Effect> Journal::settings(int64_t first, int64_t last) const {
  std::vector<Effect> found;
  std::copy_if(effects_.begin(), effects_.end(), std::back_inserter(found), [&](const Effect& effect) {
    return effect.kind == Effect::Kind::kSet && first <= effect.step && effect.step <= last;
  });
  std::stable_sort(found.begin(), found.end(),
                   [](const Effect& a, const Effect& b) { return a.step < b.step; });
  return found;
}

bool Journal::sets(const std::string& key) const {
  return std::any_of(effects_.begin(), effects_.end(), [&](const Effect& effect) {
    return effect.kind == Effect::Kind::kSet && effect.key == key;
  });
}

std::vector<std::string> Journal::set_keys() const {
  std::vector<std::string> keys;
  for (const Effect& effect : effects_)
    if (effect.kind == Effect::Kind::kSet) keys.push_back(effect.key);
  return keys;
}

double Journal::factor(Effect::Kind kind, int64_t step) const {
  double product = 1;
  for (const Effect& effect : effects_) {
    if (effect.kind == kind && effect.step < step && step <= effect.step + effect.for_steps)
      product *= effect.factor;
  }
  return product;
}

int64_t Journal::recent(int64_t step) const {
  return std::count_if(interventions_.begin(), interventions_.end(),
                       [&](const Intervention& one) { return one.at_step > step - kCountedSteps; });
}

const Intervention* Journal::last_rollback() const {
  for (auto one = interventions_.rbegin(); one != interventions_.rend(); ++one)
    if (one->to_step) return &*one;
  return nullptr;
}

OrderedJson Journal::to_json() const {
  OrderedJson json;
  json["lost_steps"] = lost_steps_;
  json["effects"] = OrderedJson::array();
  for (const Effect& effect : effects_) json["effects"].push_back(effect_json(effect));
  json["interventions"] = OrderedJson::array();
  for (const Intervention& one : interventions_) json["interventions"].push_back(intervention_json(one));
  return json;
}

Journal Journal::from_json(const nlohmann::json& json, const std::string& where) {
  try {
    Journal journal;
    json.at("lost_steps").get_to(journal.lost_steps_);
    for (const auto& one : json.at("effects")) journal.effects_.push_back(effect_from(one, where));
    for (const auto& one : json.at("interventions")) journal.interventions_.push_back(intervention_from(one));
    return journal;
  } catch (const nlohmann::json::exception& error) {
    throw DataError("[{}] is not the journal of a run: {}", where, error.what());
  }
}

}  // namespace strata::training
