#include "library/run_inputs.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "data/input/corpus_files.h"
#include "data/tokenizer/tokenizer.h"
#include "train/run_store.h"

namespace strata::library {
namespace {

bool is_toml(const std::string& input) {
  return Path(input).extension() == ".toml";
}

// The folder of a data build that has token files.
bool is_build(const std::string& input) {
  std::error_code error;
  return std::filesystem::is_regular_file(Path(input) / "sources.toml", error);
}

// Estimates the bytes of text from the builds' token files, whose ids take two or four bytes each.
int64_t build_bytes(const std::vector<std::string>& folders) {
  int64_t bytes = 0;
  for (const std::string& folder : folders) bytes += 2 * corpus_bytes({(Path(folder) / "tokens").string()});
  return bytes;
}

// Settings of a first run on builds: by default there is no text to hold out, and the builds' tokenizer
// decides the vocabulary.
std::vector<std::string> build_arguments(const std::vector<std::string>& folders) {
  const auto tokenizer = data::Tokenizer::load(Path(folders[0]) / "tokenizer.json");
  return {fmt::format("model.override.vocab_size={}", tokenizer.vocab_size()), "data.valid_fraction=0.01"};
}

// A model that can learn from a text of this size, and that a laptop trains in minutes.
struct Sizing {
  const char* preset;
  int64_t sequence_length, batch;
};
Sizing sizing_for(int64_t bytes) {
  if (bytes < int64_t{20} << 20) return {"llama3-5m", 256, 16};
  return {"llama3-29m", 512, 16};
}

}  // namespace

int64_t corpus_bytes(const std::vector<std::string>& patterns) {
  int64_t bytes = 0;
  for (const auto& file : data::find_corpus_files(patterns))
    bytes += static_cast<int64_t>(std::filesystem::file_size(file.path));
  return bytes;
}

int64_t first_run_steps(int64_t bytes, int64_t step_tokens) {
  return std::clamp<int64_t>(2 * (bytes / 4) / step_tokens, 100, 1000);
}

config::RunConfig config_for_texts(const std::vector<std::string>& texts,
                                   const std::vector<std::string>& sets) {
  const bool builds = std::all_of(texts.begin(), texts.end(), is_build);
  const int64_t bytes = builds ? build_bytes(texts) : corpus_bytes(texts);
  const Sizing sizing = sizing_for(bytes);
  const int64_t steps = first_run_steps(bytes, sizing.sequence_length * sizing.batch);
  ConfigValue::Array list;
  for (const std::string& input : texts) list.push_back({.data = input, .origin = {}});
  Path first = Path(texts.front()).lexically_normal();
  if (!first.has_filename()) first = first.parent_path();
  std::string name = first.stem().string();
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return !std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_'; }, '-');
  std::vector<std::string> arguments{
      (builds ? "data.build=" : "data.train=") + to_toml({.data = list, .origin = {}}),
      fmt::format("run.name=\"{}\"", name),
      fmt::format("run.folder=\"runs/{}\"", name),
      fmt::format("model.preset=\"{}\"", sizing.preset),
      fmt::format("training.sequence_length={}", sizing.sequence_length),
      fmt::format("training.global_batch_size={}", sizing.batch),
      fmt::format("training.steps={}", steps),
      "schedule.warmup_steps=\"auto\"",
      "optimizer.lr=2e-3"};
  if (builds) {
    for (std::string& argument : build_arguments(texts)) arguments.push_back(std::move(argument));
  }
  // The user's settings come last and override these.
  std::vector<std::string> chosen;
  for (const std::string& argument : arguments) {
    const std::string key = argument.substr(0, argument.find('='));
    const bool set =
        std::any_of(sets.begin(), sets.end(), [&](const std::string& s) { return s.starts_with(key + "="); });
    if (!set) chosen.push_back(argument);
  }
  return config::read_run_config({}, sets, chosen);
}

config::RunConfig read_command_config(const std::vector<std::string>& inputs,
                                      const std::vector<std::string>& sets) {
  const bool any_toml = std::any_of(inputs.begin(), inputs.end(), is_toml);
  if (any_toml) {
    if (inputs.size() > 1) {
      throw ConfigError(
          "[{}] found {} arguments, expected one configuration file; name texts in "
          "data.train",
          inputs[0], inputs.size());
    }
    return config::read_run_config(inputs[0], sets);
  }
  if (inputs.size() == 1) {
    if (auto stored = config::read_asked_config(inputs[0], sets)) return *std::move(stored);
  }
  return config_for_texts(inputs, sets);
}

config::PlanOptions options_as_trained(const config::RunConfig& config, const config::RankPlace& place) {
  const Path folder = config.run.folder;
  const config::RunConfig asked = config::with_degrees(config, place.ranks);
  auto stored = config::read_stored_config(folder);
  if (stored) {
    const auto changes = config::compare_for_resume(*stored, asked);
    const bool resumes = std::none_of(changes.begin(), changes.end(), [](const config::Change& change) {
      return change.resume == config::ResumeClass::kRefused;
    });
    if (!resumes) stored = std::nullopt;
  }
  return {.files = posix_file_system(),
          .place = place,
          .stored = std::move(stored),
          .stored_tokenizer = training::stored_tokenizer(folder).value_or(Path()),
          .data = config::PlanOptions::Data::kFromWhatIsThere};
}

}  // namespace strata::library
