// Names that shells complete.
#include "cli/verbs.h"
#include "config/keys.h"
#include "config/steerable.h"
#include "data/build/recipe.h"
#include "models/model.h"

namespace strata::cli {

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const models::Preset& preset : models::presets()) names.emplace_back(preset.name);
  return names;
}

std::vector<std::string> stage_names() {
  std::vector<std::string> names;
  for (const data::StageKind& kind : data::stage_kinds()) names.emplace_back(kind.name);
  return names;
}

std::vector<std::string> configuration_keys() {
  std::vector<std::string> keys;
  for (const config::TableSpec& table : config::run_tables()) {
    for (const config::KeySpec& key : table.keys) {
      if (!table.later && !key.later && !table.list) keys.push_back(table.name + "." + key.name + "=");
    }
  }
  return keys;
}

std::vector<std::string> steerable_keys() {
  std::vector<std::string> keys = config::steerable_keys();
  for (std::string& key : keys) key += "=";
  return keys;
}

}  // namespace strata::cli
