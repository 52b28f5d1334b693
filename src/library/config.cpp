#include "strata/config.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "config/keys.h"
#include "config/layout.h"
#include "config/resolve.h"
#include "library/config_impl.h"
#include "library/run_inputs.h"

namespace strata {
namespace {

std::vector<std::string> joined(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

Config make(Config::Impl::Read read, std::vector<std::string> sets) {
  config::RunConfig config = read(sets);
  static const config::IssueHook kHooks[] = {config::check_model, config::check_idle_keys};
  config::require_valid(config, kHooks);
  return Config(std::make_shared<const Config::Impl>(
      Config::Impl{std::move(config), std::move(read), std::move(sets)}));
}

}  // namespace

Config::Config(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Config Config::parse(std::string_view toml, const std::vector<std::string>& sets, const std::string& name) {
  return make([text = std::string(toml), name](
                  const std::vector<std::string>& all) { return config::parse_run_config(text, name, all); },
              sets);
}

Config Config::read(const std::string& path, const std::vector<std::string>& sets) {
  if (std::filesystem::is_directory(path)) {
    return make(
        [path](const std::vector<std::string>& all) {
          auto asked = config::read_asked_config(path, all);
          if (!asked)
            throw ConfigError("[{}] holds no run; expected a RUN.toml, or the folder of a run", path);
          return *std::move(asked);
        },
        sets);
  }
  return make([path](const std::vector<std::string>& all) { return config::read_run_config(path, all); },
              sets);
}

Config Config::for_texts(const std::vector<std::string>& paths, const std::vector<std::string>& sets) {
  if (paths.empty()) throw ConfigError("[data.train] found no path, expected one text at least");
  return make([paths](const std::vector<std::string>& all) { return library::config_for_texts(paths, all); },
              sets);
}

Config Config::with(const std::vector<std::string>& sets) const {
  return make(impl_->read, joined(impl_->sets, sets));
}

std::string Config::get(std::string_view key) const {
  for (const config::Setting& setting : config::settings(impl_->config))
    if (setting.key == key) return setting.value;
  // Unset, or unknown: only a known key can be set.
  for (const config::TableSpec& table : config::run_tables()) {
    for (const config::KeySpec& known : table.keys)
      if (table.name + "." + known.name == key) return {};
  }
  throw ConfigError("[{}] is not a key of a configuration; `strata config schema` lists them", key);
}

std::string Config::toml() const {
  return config::resolved_toml(impl_->config, "");
}

std::vector<std::string> Config::warnings() const {
  std::vector<std::string> lines;
  for (const config::Issue& warning : config::warnings(impl_->config)) lines.push_back(warning.to_string());
  return lines;
}

}  // namespace strata
