#include "train/facts.h"

#include <filesystem>

#include "base/error.h"
#include "config/resolve.h"

namespace strata::training {
namespace {

// The sources in [data], in words.
std::string data_text(const std::string& run_toml) {
  std::string text;
  try {
    const config::RunConfig config = config::parse_run_config(run_toml, "run.toml");
    for (const auto& path : config.data.train) text += (text.empty() ? "" : ", ") + fmt::format("`{}`", path);
    for (const auto& source : config.data.source)
      text += (text.empty() ? "" : ", ") + fmt::format("{} (weight {})", source.name, source.weight);
  } catch (const Error&) {  // the card shows the configuration itself
  }
  return text;
}

// The routing leaks of a run that allowed them.
std::vector<std::string> leaks_of(const std::string& run_toml) {
  try {
    const config::RunConfig config = config::parse_run_config(run_toml, "run.toml");
    if (!config.model.allow_leaking_routing) return {};
    try {
      return models::routing_leaks(config::resolve_model(config));
    } catch (const Error&) {
      return {"details unknown: the model that the run started from no longer exists"};
    }
  } catch (const Error&) {  // the card shows the configuration itself
    return {};
  }
}

}  // namespace

interop::TrainingFacts facts_of(const std::string& run, const TrainingState& state,
                                const checkpoint::Health& health, const std::string& program,
                                const std::string& run_toml) {
  return {.run = run,
          .steps = state.step,
          .tokens = state.tokens,
          .seed = state.seed,
          .data = data_text(run_toml),
          .health = health,
          .program = program,
          .run_toml = run_toml,
          .leaks = leaks_of(run_toml)};
}

std::optional<interop::TrainingFacts> facts_of_checkpoint(const Path& checkpoint) {
  std::error_code error;
  if (!std::filesystem::exists(checkpoint / "manifest.json", error)) return std::nullopt;
  const checkpoint::Manifest manifest = checkpoint::read_manifest(checkpoint);
  const Path run = std::filesystem::absolute(checkpoint).lexically_normal().parent_path().parent_path();
  const Path state = checkpoint / "state.json";
  const Path toml = run / "run.toml";
  return facts_of(run.filename().string(), training_state_from_json(read_file(state), state.string()),
                  manifest.health, manifest.program,
                  std::filesystem::exists(toml, error) ? read_file(toml) : "");
}

}  // namespace strata::training
