#include "train/resume.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/weights.h"
#include "program/initialize.h"

namespace strata::training {
namespace {

// Checks inputs that the configuration does not record and that a resume must not silently change.
std::optional<config::Change> check_state(const RunInputs& inputs, RunStore& store,
                                          const TrainingState& state, bool accept_changes) {
  if (state.step == 0) return std::nullopt;  // imported weights
  if (state.seed != static_cast<uint64_t>(inputs.config.run.seed)) {
    throw ConfigError(
        "[run.seed] is {}, but the checkpoint was made with {}, and the data order depends on it; restore it, "
        "or start a new run in another run.folder",
        inputs.config.run.seed, state.seed);
  }
  if (state.tokenizer != inputs.tokenizer_hash()) {
    throw ConfigError(
        "[tokenizer] differs from the tokenizer of the checkpoint at step {}; restore it, or start a new run "
        "in another run.folder",
        state.step);
  }
  const std::string data = config::data_fingerprint(inputs.data);
  if (state.data == data || store.accepted_data(data)) return std::nullopt;
  if (!accept_changes) {
    throw ConfigError(
        "[data] the training tokens have changed since step {}: files of the corpus or its held-out part "
        "differ; restore them, or continue with --accept-changes",
        state.step);
  }
  if (inputs.is_first()) store.accept_data(data);
  log_info("changed: the training tokens differ from those at step {}", state.step);
  return config::Change{"data", state.data, data, config::ResumeClass::kAccept};
}

}  // namespace

Resumed resume_run(const RunInputs& inputs, RunStore& store, program::Executor& executor,
                   const std::string& resume, bool accept_changes) {
  const config::RunConfig& config = inputs.config;
  Resumed resumed{.state = {}, .from_elsewhere = resume != "auto" && resume != "never", .change = {}};
  const std::optional<TrainingState> stored = resumed.from_elsewhere
                                                  ? store.load(resume, inputs.model, executor)
                                                  : store.load_newest(inputs.model, executor);
  if (stored) {
    resumed.change = check_state(inputs, store, *stored, accept_changes);
    resumed.state = *stored;
    return resumed;
  }
  program::initialize_weights(executor, static_cast<uint64_t>(config.run.seed));
  if (!config.model.from.empty() && config.model.init == config::ModelInit::kWeights)
    checkpoint::load_hugging_face(config::model_folder(config), inputs.model, executor);
  return resumed;
}

void log_order(const data::SampleSource& samples) {
  const data::DataOrigin& origin = samples.options().origin;
  log_info("data: a new order of samples begins at sample {}", origin.sample);
  const int64_t window = samples.shape().window;
  for (const data::SourcePosition& at : origin.sources) {
    if (at.offset == 0 || at.layout.window == window) continue;
    log_info(
        "data: the rest of epoch {} of {} keeps its windows of {} tokens; rows of {} are assembled from them "
        "until it ends",
        at.epoch + 1, at.name, at.layout.window, window);
  }
}

}  // namespace strata::training
