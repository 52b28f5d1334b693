// Turns a configuration into sample options.
#include "base/error.h"
#include "config/objective.h"
#include "config/ramp.h"
#include "config/resolve.h"
#include "data/samples/fim.h"

namespace strata::config {
namespace {

data::FimOptions fim_options(const RunConfig& config, const models::ModelConfig& model,
                             const data::Tokenizer* tokenizer) {
  data::FimOptions options{.rate = config.data.fim_rate, .spm_rate = config.data.fim_spm_rate};
  if (options.rate == 0) return options;
  if (tokenizer == nullptr) {
    throw ConfigError(
        "[data.fim_rate] found {} without a tokenizer, which defines the tokens that mark the parts of a text; "
        "set tokenizer.path, or leave fim_rate at 0",
        options.rate);
  }
  // A token beyond the model's vocabulary cannot be used.
  const auto id_of = [&](std::string_view name) {
    const auto id = tokenizer->token_to_id(name);
    return id && *id < model.vocab_size ? id : std::nullopt;
  };
  data::find_fim_tokens(id_of, options);
  options.end_of_text = tokenizer->end_of_text_id();
  options.begin_of_text = tokenizer->ends().begin;
  return options;
}

}  // namespace

data::SampleOptions sample_options(const RunConfig& config, const models::ModelConfig& model,
                                   const data::Tokenizer* tokenizer, data::DataOrigin origin) {
  data::SampleOptions options;
  options.sequence_length = config.training.sequence_length;
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.shuffle = config.data.shuffle;
  options.pack = config.data.pack;
  options.fim = fim_options(config, model, tokenizer);
  options.objective = objective_options(config, model, tokenizer);
  options.epochs = config.data.epochs.value_or(0);
  for (const Range& range : config.data.skip) options.skip.push_back({range.first, range.last + 1});
  const data::SkipRanges skip(options.skip);
  const int64_t trained = skip.trained_before(origin.sample);
  for (const DataPhase& phase : config.data.phase) {
    const int64_t steps = phase.from_step - 1 - origin.step;
    data::MixturePhase mixture{origin.sample, {}};
    // As if every row were full.
    const int64_t tokens = trained * config.training.sequence_length;
    if (steps > 0)
      mixture.first_sample = skip.global_of(trained + Ramps(config).samples(tokens, {.steps = steps}));
    for (const DataSource& source : config.data.source) {
      const auto weight = phase.weights.find(source.name);
      mixture.weights.push_back(weight == phase.weights.end() ? 0.0 : weight->second);
    }
    options.phases.push_back(std::move(mixture));
  }
  options.origin = std::move(origin);
  return options;
}

}  // namespace strata::config
