#include "config/choice.h"

#include <algorithm>

#include "base/error.h"
#include "config/keys.h"

namespace strata::config {
namespace {

ConfigValue toml(auto value) {
  ConfigValue out;
  out.data = std::move(value);
  return out;
}

// A key of a table that is not a list.
struct Place {
  const TableSpec& table;
  const KeySpec& key;
};
Place place_of(const std::string& key) {
  const size_t dot = key.rfind('.');
  const TableSpec* table = find_table(key.substr(0, dot));
  STRATA_CHECK(table != nullptr && !table->list, "{} has no table", key);
  const auto spec = std::find_if(table->keys.begin(), table->keys.end(),
                                 [&](const KeySpec& one) { return one.name == key.substr(dot + 1); });
  STRATA_CHECK(spec != table->keys.end(), "{} is not a key", key);
  return {*table, *spec};
}

std::string value_of(RunConfig& config, const std::string& key) {
  const Place place = place_of(key);
  const auto value = place.key.write(place.table.at(config, 0));
  return value ? to_toml(*value) : "";
}

}  // namespace

Choice chosen(std::string key, int64_t value, std::string why) {
  return {std::move(key), to_toml(toml(value)), std::move(why)};
}
Choice chosen(std::string key, double value, std::string why) {
  return {std::move(key), to_toml(toml(value)), std::move(why)};
}
Choice chosen(std::string key, std::string_view value, std::string why) {
  return {std::move(key), to_toml(toml(std::string(value))), std::move(why)};
}
Choice chosen(std::string key, const std::vector<std::string>& value, std::string why) {
  ConfigValue::Array items;
  for (const std::string& one : value) items.push_back(toml(one));
  return {std::move(key), to_toml(toml(std::move(items))), std::move(why)};
}

RunConfig with(const RunConfig& config, std::span<const Choice> choices) {
  RunConfig out = config;
  for (const Choice& choice : choices) {
    const Place place = place_of(choice.key);
    const ConfigValue root = parse_toml("value = " + choice.value, choice.key);
    if (!place.key.read(place.table.at(out, 0), *root.find("value"))) {
      throw ConfigError("[{}] the automatic choice is {} ({}), expected {}; set the key", choice.key,
                        choice.value, choice.why, expected_text(place.key.shape));
    }
  }
  return out;
}

void Choices::take(std::vector<Choice> made) {
  for (Choice& one : made) {
    const auto before =
        std::find_if(all_.begin(), all_.end(), [&](const Choice& other) { return other.key == one.key; });
    if (before != all_.end()) {
      one.from = before->from;
      *before = one;
    } else {
      if (one.from.empty()) one.from = value_of(config_, one.key);
      all_.push_back(one);
    }
  }
  std::erase_if(all_, [](const Choice& one) { return one.value == one.from; });  // as it was asked for
  config_ = with(config_, made);
}

void Choices::keep(const RunConfig& kept) {
  for (Change& change : compare(config_, kept))
    all_.push_back({change.key, change.after, "as the run was started", change.before});
  config_ = kept;
}

}  // namespace strata::config
