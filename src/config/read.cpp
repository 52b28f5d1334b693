#include <algorithm>

#include "base/error.h"
#include "base/suggest.h"
#include "config/builds.h"
#include "config/keys.h"
#include "config/paths.h"

namespace strata::config {
namespace {

std::string shown(const ConfigValue& value) {
  std::string text = to_toml(value);
  constexpr size_t kMost = 80;
  return text.size() > kMost ? text.substr(0, kMost) + "…" : text;
}

class Reader {
 public:
  explicit Reader(RunConfig& config) : config_(config) {}

  void read(const ConfigValue& root) {
    for (const ConfigEntry& entry : std::get<ConfigValue::Table>(root.data)) read_entry("", entry);
  }

 private:
  void report(const std::string& key, const Origin& origin, std::string problem) {
    config_.reading_issues.push_back({key, origin, std::move(problem)});
  }

  // One entry of the table `outer` ("" at the top level): a table, or an unknown key.
  void read_entry(const std::string& outer, const ConfigEntry& entry) {
    const std::string name = outer.empty() ? entry.key : outer + "." + entry.key;
    const TableSpec* table = find_table(name);
    if (!table) {
      unknown(outer, entry);
    } else if (!table->list) {
      read_table(*table, 0, entry.value);
    } else if (const auto* items = entry.value.get_if<ConfigValue::Array>()) {
      for (size_t i = 0; i < items->size(); ++i) read_table(*table, i, (*items)[i]);
    } else {
      report(name, entry.value.origin,
             fmt::format("found {}, expected a list of tables; write [[{}]]", shown(entry.value), name));
    }
  }

  void read_table(const TableSpec& table, size_t index, const ConfigValue& value) {
    const std::string path = table_path(table, index);
    const auto* entries = value.get_if<ConfigValue::Table>();
    if (!entries) {
      report(path, value.origin,
             fmt::format("found {}, expected a table; write {}", shown(value),
                         table.list ? "[[" + table.name + "]]" : "[" + table.name + "]"));
      return;
    }
    void* object = table.at(config_, index);
    if (table.name == "tokenizer.train") config_.tokenizer.train_given = true;
    for (const ConfigEntry& entry : *entries) {
      const auto spec = std::find_if(table.keys.begin(), table.keys.end(),
                                     [&](const KeySpec& key) { return key.name == entry.key; });
      if (spec == table.keys.end()) {
        read_entry(table.name, entry);
      } else {
        read_key(path + "." + entry.key, *spec, object, entry.value);
      }
    }
  }

  void read_key(const std::string& path, const KeySpec& spec, void* object, const ConfigValue& value) {
    config_.origins[path] = value.origin;
    const auto* text = value.get_if<std::string>();
    const auto is_later = [&](const std::string& name) {
      return std::find(spec.shape.later.begin(), spec.shape.later.end(), name) != spec.shape.later.end();
    };
    if (text && is_later(*text)) {
      ValueShape now = spec.shape;
      std::erase_if(now.choices, is_later);
      return report(
          path, value.origin,
          fmt::format("found \"{}\": not yet in this version, expected {}", *text, expected_text(now)));
    }
    if (spec.read(object, value)) return;
    std::string problem = fmt::format("found {}, expected {}", shown(value), expected_text(spec.shape));
    if (text && spec.shape.base == ValueShape::Base::kChoice) {
      if (const auto near = nearest_name(*text, spec.shape.choices))
        problem += fmt::format("; did you mean \"{}\"?", *near);
    }
    report(path, value.origin, std::move(problem));
  }

  // The names that the table `outer` may contain.
  static std::vector<std::string> known_names(const std::string& outer) {
    std::vector<std::string> out;
    for (const TableSpec& table : run_tables()) {
      if (table.name == outer) {
        for (const KeySpec& key : table.keys) out.push_back(key.name);
      }
      const size_t dot = table.name.rfind('.');
      const std::string parent = dot == std::string::npos ? "" : table.name.substr(0, dot);
      if (parent == outer) out.push_back(dot == std::string::npos ? table.name : table.name.substr(dot + 1));
    }
    return out;
  }

  void unknown(const std::string& outer, const ConfigEntry& entry) {
    const std::string what =
        outer.empty() ? (entry.value.is_table() ? "unknown table" : "unknown key outside any table")
                      : "unknown key";
    std::string problem = what;
    const std::vector<std::string> names = known_names(outer);
    if (const auto near = nearest_name(entry.key, names)) {
      problem += fmt::format("; did you mean \"{}\"?", *near);
    } else if (const auto elsewhere = table_with_key(entry.key)) {
      problem += fmt::format("; [{}] has a key of this name", *elsewhere);
    } else {
      std::string list;
      for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
      problem += "; known here: " + list;
    }
    report(outer.empty() ? entry.key : outer + "." + entry.key, entry.value.origin, std::move(problem));
  }

  static std::optional<std::string> table_with_key(const std::string& name) {
    for (const TableSpec& table : run_tables()) {
      for (const KeySpec& key : table.keys) {
        if (key.name == name) return table.name;
      }
    }
    return std::nullopt;
  }

  RunConfig& config_;
};

RunConfig from_tree(const ConfigValue& root, const std::string& file_name) {
  RunConfig config;
  read_tree(config, root);
  if (config.run.name == "auto") {
    const std::string stem = Path(file_name).stem().string();
    config.run.name = stem.empty() ? "run" : stem;
  }
  if (config.run.folder == "auto") config.run.folder = "runs/" + config.run.name;
  return config;
}

// Keys with build folders are read first: other keys may override the builds' values.
void apply_sets(ConfigValue& root, std::span<const std::string> sets) {
  const auto names_build = [](const std::string& set) {
    return set.starts_with("data.build=") || set.starts_with("data.build ");
  };
  for (const std::string& set : sets)
    if (names_build(set)) apply_set(root, set);
  lay_builds(root);
  for (const std::string& set : sets)
    if (!names_build(set)) apply_set(root, set);
}

}  // namespace

void read_tree(RunConfig& config, const ConfigValue& root) {
  Reader(config).read(root);
}

std::string Issue::to_string() const {
  std::string where = origin.kind == Origin::Kind::kDefault ? "" : strata::to_string(origin) + ": ";
  return where + (key.empty() ? "" : key + ": ") + problem;
}

Origin RunConfig::origin_of(const std::string& key) const {
  const auto found = origins.find(key);
  return found == origins.end() ? Origin{} : found->second;
}

RunConfig read_run_config(const Path& path, std::span<const std::string> sets,
                          std::span<const std::string> arguments) {
  ConfigValue root;
  root.data = ConfigValue::Table{};
  if (!path.empty()) root = read_toml(path);
  for (const std::string& argument : arguments) apply_set(root, argument, Origin::Kind::kArgument);
  apply_sets(root, sets);
  RunConfig config = from_tree(root, path.string());
  lay_paths(config, path);
  return config;
}

RunConfig parse_run_config(std::string_view text, const std::string& name,
                           std::span<const std::string> sets) {
  ConfigValue root = parse_toml(text, name);
  apply_sets(root, sets);
  return from_tree(root, name);
}

}  // namespace strata::config
