#include "config/paths.h"

#include <algorithm>
#include <filesystem>

#include "base/function_ref.h"
#include "config/keys.h"

namespace strata::config {
namespace {

std::string laid(const std::string& path, const Path& folder) {
  const bool leads_on = !path.empty() && path.find("://") == std::string::npos && Path(path).is_relative();
  return leads_on ? (folder / path).lexically_normal().string() : path;
}

// The base of paths in run.toml: the folder in which the run was started or, if the whole project has been
// moved, the folder relative to which the run's folder has its configured name.
Path begin_of_paths(const RunConfig& config, const Path& run) {
  const Path actual = std::filesystem::weakly_canonical(run);
  Path started = config.run.started_in;
  std::error_code error;
  if (std::filesystem::equivalent(started / config.run.folder, actual, error)) return started;
  const Path name = Path(config.run.folder).lexically_normal();
  if (name.is_absolute()) return started;
  const auto parts = std::distance(name.begin(), name.end());
  Path base = actual;
  for (auto i = parts; i > 0; --i) base = base.parent_path();
  return base / name == actual ? base : started;
}

// Replaces every path of the configuration. Paths from the command line are relative to the user's current
// directory and stay unchanged.
void map_paths(RunConfig& config, FunctionRef<std::string(const std::string&)> replace) {
  for (const TableSpec& table : run_tables()) {
    for (size_t i = 0; i < table.count(config); ++i) {
      void* object = table.at(config, i);
      for (const KeySpec& spec : table.keys) {
        const Origin origin = config.origin_of(table_path(table, i) + "." + spec.name);
        auto value = spec.path && origin.kind != Origin::Kind::kSet ? spec.write(object) : std::nullopt;
        if (!value) continue;
        if (auto* text = std::get_if<std::string>(&value->data)) *text = replace(*text);
        if (auto* list = std::get_if<ConfigValue::Array>(&value->data)) {
          for (ConfigValue& item : *list)
            if (auto* text = std::get_if<std::string>(&item.data)) *text = replace(*text);
        }
        spec.read(object, *value);
      }
    }
  }
}

}  // namespace

void lay_paths(RunConfig& config, const Path& file) {
  if (config.run.started_in.empty()) return;
  const Path folder = begin_of_paths(config, std::filesystem::absolute(file).parent_path());
  config.run.started_in = folder.string();
  std::error_code error;
  if (std::filesystem::equivalent(folder, std::filesystem::current_path(), error)) return;
  map_paths(config, [&](const std::string& path) { return laid(path, folder); });
}

void take_back_paths(RunConfig& config) {
  if (config.run.started_in.empty()) {
    config.run.started_in = std::filesystem::current_path().string();
    return;
  }
  const Path folder = config.run.started_in;
  map_paths(config, [&](const std::string& path) {
    if (path.empty() || path.find("://") != std::string::npos) return path;
    const Path absolute = std::filesystem::absolute(path).lexically_normal();
    const Path within = absolute.lexically_relative(folder);
    const bool inside = !within.empty() && *within.begin() != "..";
    return (inside ? within : absolute).string();
  });
}

std::vector<std::string> alert_command(const RunConfig& config) {
  std::vector<std::string> command = config.log.alert_command;
  if (!command.empty() && command[0].find('/') != std::string::npos && !config.run.started_in.empty())
    command[0] = laid(command[0], config.run.started_in);
  return command;
}

std::optional<RunConfig> read_stored_config(const Path& run, std::span<const std::string> sets) {
  const Path path = run / "run.toml";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  return read_run_config(path, sets);
}

std::optional<RunConfig> read_asked_config(const Path& run, std::span<const std::string> sets) {
  const std::optional<RunConfig> stored = read_stored_config(run);
  if (!stored) return std::nullopt;
  std::vector<std::string> all = stored->run.chosen;
  all.insert(all.end(), sets.begin(), sets.end());
  return read_stored_config(run, all);
}

}  // namespace strata::config
