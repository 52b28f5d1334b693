// Evaluations during a run: held-out losses, tasks and samples of text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "evaluation/evaluate.h"
#include "evaluation/routing.h"
#include "program/executor.h"
#include "train/due.h"
#include "train/run_inputs.h"
#include "train/run_position.h"
#include "train/step_record.h"

namespace strata::training {

// Finds errors in eval.sample_prompts before an evaluation needs them. ConfigError.
void check_prompts(const config::RunConfig& config, const data::Tokenizer* tokenizer,
                   const program::ProgramSet& set);

// All ranks construct one and call measure() and write_texts() after the same steps. Used by one thread.
// DataError for unreadable held-out text, WorldError for lost ranks.
class Evaluations {
 public:
  // `executor` must outlive it.
  Evaluations(const RunInputs& inputs, program::Executor& executor);

  // Whether the run evaluates at all; if so, also after its last step.
  bool has_any() const;
  // Whether the interval requests an evaluation after the next step.
  bool is_due(const RunPosition& position) const { return due_.after_next(position); }

  // After a change of the configuration.
  void changed() { due_.set_interval(inputs_.config.eval.interval); }

  // Losses of the held-out sets, then results of the tasks. `stop` is called between batches of a task and
  // must return the same on all ranks. Once it has returned true, no further task is scored and the task in
  // progress is omitted.
  EvaluationResults measure(int64_t step, const std::function<bool()>& stop);

  struct Text {
    std::string prompt, text;
  };
  // Generates texts from the configured prompts; none without a tokenizer.
  std::vector<Text> write_texts();

 private:
  // Under a recipe, steps read codes and do not update the packed weights of other programs.
  void pack_weights(size_t program);
  // The loss of a set. For a model with experts, appends this rank's routing counts to `routing`.
  evaluation::EvalResult evaluate_set(const data::EvalWindows& windows,
                                      std::vector<evaluation::LayerCounts>& routing);
  void add_held_out(EvaluationResults& results);
  // Returns false if `stop` ended it.
  bool add_task(const config::TaskSet& set, const std::function<bool()>& stop, EvaluationResults& results);

  RunInputs inputs_;
  program::Executor& executor_;
  Due due_;
};

}  // namespace strata::training
