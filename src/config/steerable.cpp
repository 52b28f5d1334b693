#include "config/steerable.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/suggest.h"
#include "config/keys.h"

namespace strata::config {
namespace {

constexpr std::array<std::string_view, 4> kTables = {"log", "eval", "checkpoint", "recovery"};
constexpr std::array<std::string_view, 3> kKeys = {"optimizer.lr", "training.clip_grad_norm", "data.skip"};
constexpr const char* kInWords =
    "the keys of [log], [eval], [checkpoint] and [recovery], optimizer.lr, training.clip_grad_norm and "
    "data.skip";

// The table in which a dotted key begins, or an empty text.
std::string_view first_part(std::string_view key) {
  const size_t dot = key.find('.');
  return dot == std::string_view::npos ? std::string_view() : key.substr(0, dot);
}

bool contains_name(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Text and sizes that are read, and memory that is planned, only when a run starts.
bool is_read_at_start(std::string_view key) {
  return key == "eval.max_tokens" || key == "eval.set" || key.starts_with("eval.set.") ||
         key == "recovery.in_memory" || key == "recovery.copies" || key == "recovery.peer_copies";
}

bool is_in_tables(const TableSpec& table) {
  const std::string_view name = table.name;
  return contains_name(kTables, name.substr(0, name.find('.')));
}

// The part of the configuration that can be steered, as it would be written.
ConfigValue tree_of(const RunConfig& config) {
  RunConfig own = config;
  ConfigValue root{.data = ConfigValue::Table{}, .origin = {}};
  for (const TableSpec& table : run_tables()) {
    if (!is_in_tables(table)) continue;
    ConfigValue* at = &root;
    const std::string& name = table.name;
    for (size_t begin = 0; begin < name.size();) {
      const size_t end = std::min(name.find('.', begin), name.size());
      auto& entries = std::get<ConfigValue::Table>(at->data);
      const std::string part = name.substr(begin, end - begin);
      if (at->find(part) == nullptr) {
        const bool list = table.list && end == name.size();
        if (list && table.count(config) == 0) break;
        entries.push_back({part, {.data = ConfigValue::Table{}, .origin = {}}});
        if (list) entries.back().value.data = ConfigValue::Array{};
      }
      at = at->find(part);
      begin = end + 1;
    }
    for (size_t i = 0; i < table.count(config); ++i) {
      ConfigValue::Table keys;
      for (const KeySpec& spec : table.keys) {
        auto value = spec.write(table.at(own, i));
        if (value) keys.push_back({spec.name, *std::move(value)});
      }
      if (auto* items = std::get_if<ConfigValue::Array>(&at->data)) {
        items->push_back({.data = std::move(keys), .origin = {}});
      } else {
        auto& entries = std::get<ConfigValue::Table>(at->data);
        // A sub-table that was made before its parent's keys stays.
        entries.insert(entries.begin(), std::make_move_iterator(keys.begin()),
                       std::make_move_iterator(keys.end()));
      }
    }
  }
  return root;
}

// The words that leave a choice to the program are for the start of a run, which has made its choices.
bool leaves_open(const NewSetting& setting) {
  if (setting.value != "\"auto\"" && setting.value != "\"training\"") return false;
  for (const TableSpec& table : run_tables()) {
    for (const KeySpec& spec : table.keys) {
      if (table.name + "." + spec.name != setting.key) continue;
      const bool live = spec.shape.base == ValueShape::Base::kInterval;
      return !live && spec.shape.word == "auto";
    }
  }
  return false;
}

std::string problem_text(const Issue& issue) {
  return issue.key.empty() ? issue.problem : issue.key + ": " + issue.problem;
}

[[noreturn]] void refuse(const std::vector<std::string>& problems) {
  std::string text;
  for (const std::string& problem : problems) text += (text.empty() ? "" : "; ") + problem;
  throw ConfigError("[set] {}", text);
}

}  // namespace

std::vector<std::string> steerable_keys() {
  std::vector<std::string> keys;
  for (const TableSpec& table : run_tables()) {
    for (const KeySpec& spec : table.keys) {
      const std::string key = table.name + "." + spec.name;
      if (spec.later || table.list || is_read_at_start(key)) continue;
      if (is_in_tables(table) || contains_name(kKeys, key)) keys.push_back(key);
    }
  }
  return keys;
}

void require_steerable(std::string_view key) {
  if (is_read_at_start(key)) {
    throw ConfigError(
        "[set {0}] is read when a run starts: stop the run and resume it with --set {0}=…, or set another "
        "key",
        key);
  }
  if (contains_name(kTables, first_part(key)) || contains_name(kKeys, key)) return;
  const auto near = nearest_name(std::string(key), steerable_keys());
  throw ConfigError("[set {}] cannot change while a run is running{}; strata set takes {}", key,
                    near ? fmt::format("; did you mean {}?", *near) : "", kInWords);
}

std::vector<NewSetting> parse_new_settings(std::span<const std::string> assignments) {
  std::vector<NewSetting> out;
  for (const std::string& assignment : assignments) {
    ConfigValue root{.data = ConfigValue::Table{}, .origin = {}};
    const size_t equals = assignment.find('=');
    std::string key = assignment.substr(0, equals);
    std::erase(key, ' ');
    if (equals == std::string::npos || key.empty())
      throw ConfigError("[set] found \"{}\", expected KEY=VALUE such as optimizer.lr=5e-4", assignment);
    require_steerable(key);
    apply_set(root, "value=" + assignment.substr(equals + 1));
    out.push_back({std::move(key), to_toml(*root.find("value"))});
  }
  return out;
}

RunConfig with_settings(const RunConfig& config, std::span<const NewSetting> settings) {
  std::vector<std::string> problems;
  ConfigValue root = tree_of(config);
  for (const NewSetting& setting : settings) {
    require_steerable(setting.key);
    if (leaves_open(setting)) {
      problems.push_back(
          fmt::format("{}: found {}, but the run made its choice when it started; give a value", setting.key,
                      setting.value));
      continue;
    }
    apply_set(root, setting.key + "=" + setting.value);
  }
  RunConfig out = config;
  out.log = {};
  out.eval = {};
  out.checkpoint = {};
  out.recovery = {};
  out.reading_issues.clear();
  read_tree(out, root);
  out.origins = config.origins;  // reading has made all keys of these tables the user's
  for (const NewSetting& setting : settings)
    out.origins[setting.key] = {.kind = Origin::Kind::kSet, .file = {}, .line = 0, .text = setting.key};
  if (problems.empty()) {
    const std::vector<Issue> before = validate(config);
    for (const Issue& issue : validate(out)) {
      const auto same = [&](const Issue& old) {
        return old.key == issue.key && old.problem == issue.problem;
      };
      if (std::none_of(before.begin(), before.end(), same)) problems.push_back(problem_text(issue));
    }
  }
  if (!problems.empty()) refuse(problems);
  return out;
}

RunConfig keep_steered(const RunConfig& asked, const RunConfig& stored,
                       std::span<const std::string> steered) {
  RunConfig out = asked, source = stored;
  const auto has = [&](const std::string& key) {
    return std::any_of(steered.begin(), steered.end(), [&](const std::string& one) {
      return one == key || one.starts_with(key + ".") || key.starts_with(one + ".");
    });
  };
  for (const TableSpec& table : run_tables()) {
    if (table.list) continue;
    for (const KeySpec& spec : table.keys) {
      if (!has(table.name + "." + spec.name)) continue;
      if (const auto value = spec.write(table.at(source, 0))) spec.read(table.at(out, 0), *value);
    }
  }
  if (has("recovery.rule")) out.recovery.rule = source.recovery.rule;
  return out;
}

}  // namespace strata::config
