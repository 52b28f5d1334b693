#include "train/run_save.h"

#include <cmath>
#include <utility>

#include "program/update.h"

namespace strata::training {

RunStore::Save make_save(const RunInputs& inputs, const program::Executor& executor,
                         const RunPosition& position, const StepRecord& newest,
                         const EvaluationResults& evaluations, const Journal& journal) {
  TrainingState state = position.state();
  state.updates = program::updates_made(executor);
  state.seed = static_cast<uint64_t>(inputs.config.run.seed);
  state.tokenizer = inputs.tokenizer_hash();
  state.data = config::data_fingerprint(inputs.data);
  state.guard = program::guard_history(executor);
  state.journal = journal;
  // A step without an update does not measure the weights.
  const bool made = newest.decision.skip == 0;
  checkpoint::Health health{.loss = made ? newest.loss : std::nullopt,
                            .grad_norm = made ? newest.grad_norm : 0,
                            .finite = std::isfinite(newest.param_norm),
                            .metrics = {}};
  for (const auto& [name, value] : evaluations) health.metrics[name] = value;
  const auto& keys = inputs.config.checkpoint;
  checkpoint::RetentionPolicy retention{
      .keep_last = keys.keep_last, .keep_best = keys.keep_best, .best_metric = keys.best_metric};
  if (keys.keep_every.kind == config::Interval::Kind::kSteps) retention.keep_every = keys.keep_every.count;
  return {inputs.model, executor, inputs.tokenizer, std::move(state), std::move(health), retention};
}

}  // namespace strata::training
