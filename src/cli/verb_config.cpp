// strata config show|diff|schema
#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/toml.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "config/run_config.h"
#include "config/value_json.h"

namespace strata::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string file, other;
  std::vector<std::string> sets;
  bool json = false;
};

// A run's folder means its resolved configuration.
config::RunConfig read_config(const std::string& file, const std::vector<std::string>& sets) {
  Path path = file;
  if (std::filesystem::is_directory(path)) path /= "run.toml";
  config::RunConfig config = config::read_run_config(path, sets);
  config::require_valid(config);
  return config;
}

const char* class_name(config::ResumeClass resume) {
  switch (resume) {
    case config::ResumeClass::kFree:
      return "free";
    case config::ResumeClass::kAccept:
      return "accept";
    case config::ResumeClass::kRefused:
      return "refused";
  }
  return "";
}

// A setting's TOML as a typed JSON value; null: not there.
Json json_of(const std::string& toml) {
  if (toml.empty()) return {};
  return config::to_json(*parse_toml("value = " + toml, "a setting").find("value"));
}

int show(const Options& options) {
  const auto settings = config::settings(read_config(options.file, options.sets));
  if (options.json) {
    Json out = Json::object();
    for (const auto& setting : settings) {
      out[setting.key] = {{"value", json_of(setting.value)},
                          {"origin", to_string(setting.origin)},
                          {"resume", class_name(setting.resume)}};
    }
    print_out(dump_json(out) + "\n");
    return 0;
  }
  size_t width = 0;
  constexpr size_t kWidest = 56;
  for (const auto& setting : settings) {
    width = std::max(width, std::min(kWidest, setting.key.size() + 3 + setting.value.size()));
  }
  for (const auto& setting : settings) {
    print_out(
        fmt::format("{:<{}}  # {}\n", setting.key + " = " + setting.value, width, to_string(setting.origin)));
  }
  return 0;
}

int diff(const Options& options) {
  const auto changes = config::compare(read_config(options.file, {}), read_config(options.other, {}));
  if (options.json) {
    Json list = Json::array();
    for (const auto& change : changes) {
      list.push_back({{"key", change.key},
                      {"before", json_of(change.before)},
                      {"after", json_of(change.after)},
                      {"resume", class_name(change.resume)}});
    }
    print_out(dump_json(Json{{"changes", list}}) + "\n");
    return 0;
  }
  for (const auto& change : changes) {
    const char* note = change.resume == config::ResumeClass::kFree     ? ""
                       : change.resume == config::ResumeClass::kAccept ? "  (a resume needs --accept-changes)"
                                                                       : "  (refused on resume)";
    print_out(fmt::format("{}: {} → {}{}\n", change.key, change.before.empty() ? "unset" : change.before,
                          change.after.empty() ? "unset" : change.after, note));
  }
  if (changes.empty()) print_out("no key differs\n");
  return 0;
}

}  // namespace

void add_config(Verb root) {
  auto options = std::make_shared<Options>();
  Verb config =
      root.verb("config", "Show, compare and describe configurations", "strata config show RUN.toml");

  Verb show_verb = config.verb("show", "Show every key with its value and source",
                               "strata config show RUN.toml --set training.steps=200");
  show_verb.option("FILE", options->file, "A RUN.toml, or the folder of a run").required();
  show_verb.sets(options->sets).suggest(configuration_keys());
  show_verb.json(options->json);
  show_verb.action([options] { return show(*options); });

  Verb diff_verb = config.verb("diff", "List the keys in which two configurations differ",
                               "strata config diff runs/first RUN.toml");
  diff_verb.option("FIRST", options->file, "A RUN.toml, or the folder of a run").required();
  diff_verb.option("SECOND", options->other, "Another one").required();
  diff_verb.json(options->json);
  diff_verb.action([options] { return diff(*options); });

  Verb schema = config.verb("schema", "Print a JSON Schema of RUN.toml, for editors",
                            "strata config schema > run.schema.json");
  schema.action([] {
    print_out(config::config_schema() + "\n");
    return 0;
  });
}

}  // namespace strata::cli
