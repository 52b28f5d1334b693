#include "train/resume.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/weights.h"
#include "comm/exchange.h"
#include "program/initialize.h"

namespace strata::training {
namespace {

// Checks the inputs that a resume must not change silently: seed, tokenizer and training tokens. Returns a
// change of the training tokens that --accept-changes allows now, but not one that was accepted earlier.
std::optional<config::Change> check_state(const RunInputs& inputs, RunStore& store,
                                          const TrainingState& state, bool accept_changes) {
  if (state.step == 0) return std::nullopt;  // imported weights
  if (state.seed != static_cast<uint64_t>(inputs.config.run.seed)) {
    throw ConfigError(
        "[run.seed] {} differs from the checkpoint's seed {}, which determines the data order; restore the "
        "seed, or start a new run in another run.folder",
        inputs.config.run.seed, state.seed);
  }
  if (state.tokenizer != inputs.tokenizer_hash()) {
    throw ConfigError(
        "[tokenizer] differs from the checkpoint's tokenizer at step {}; restore it, or start a new run in "
        "another run.folder",
        state.step);
  }
  const std::string data = config::data_fingerprint(inputs.data);
  if (state.data == data || store.accepted_data(data)) return std::nullopt;
  if (!accept_changes) {
    throw ConfigError(
        "[data] the training tokens have changed since step {}: corpus files or the held-out split differ; "
        "restore them, or continue with --accept-changes",
        state.step);
  }
  if (inputs.is_first()) store.accept_data(data);
  log_info("changed: training tokens (since step {})", state.step);
  return config::Change{"data", state.data, data, config::ResumeClass::kAccept};
}

// Why this start uses no copies in memory; "": it does.
std::string_view why_no_copies(const config::RunConfig& config, const RunStore& store, const Resumed& resumed,
                               bool may_use_copies) {
  if (config.recovery.copies.kind == config::Interval::Kind::kNever) return "recovery.copies is \"never\"";
  if (resumed.from_elsewhere) return "--resume names a checkpoint";
  // Those of a run that was in this folder before are found to be another's.
  if (!may_use_copies && store.holds_run()) return "the run starts again with other settings";
  return "";
}

}  // namespace

Resumed resume_run(const RunInputs& inputs, RunStore& store, program::Executor& executor, Copies& copies,
                   const std::string& resume, bool accept_changes, bool may_use_copies) {
  Resumed resumed{.state = {},
                  .from_elsewhere = resume != "auto" && resume != "never",
                  .from_copies = false,
                  .change = {}};
  const double mine = inputs.is_first() ? static_cast<double>(store.newest_checkpoint()) : 0;
  const auto newest = static_cast<int64_t>(comm::gather_values(inputs.ranks.all(), mine).front());
  std::optional<TrainingState> stored =
      copies.restore(newest, why_no_copies(inputs.config, store, resumed, may_use_copies));
  resumed.from_copies = stored.has_value();
  if (!stored) {
    stored = resumed.from_elsewhere ? store.load(resume, inputs.model, executor)
                                    : store.load_newest(inputs.model, executor);
  }
  if (stored) {
    resumed.change = check_state(inputs, store, *stored, accept_changes);
    resumed.state = *stored;
    return resumed;
  }
  start_weights(inputs, executor);
  return resumed;
}

void start_weights(const RunInputs& inputs, program::Executor& executor) {
  const config::RunConfig& config = inputs.config;
  program::initialize_weights(executor, static_cast<uint64_t>(config.run.seed));
  if (!config.model.from.empty() && config.model.init == config::ModelInit::kWeights)
    checkpoint::load_hugging_face(config::model_folder(config), inputs.model, executor);
}

void log_order(const data::SampleSource& samples) {
  const data::DataOrigin& origin = samples.options().origin;
  log_info("data: new sample order from sample {} on", origin.sample);
  const int64_t window = samples.shape().window;
  for (const data::SourcePosition& at : origin.sources) {
    if (at.offset == 0 || at.layout.window == window) continue;
    log_info(
        "data: epoch {} of {} keeps its {}-token windows until it ends; {}-token rows are assembled from "
        "them",
        at.epoch + 1, at.name, at.layout.window, window);
  }
}

}  // namespace strata::training
