// What strata eval --tokens or --text works on: a model, windows of tokens, a program.
#pragma once

#include <string>

#include "cli/actions.h"
#include "config/run_config.h"
#include "data/samples/eval_windows.h"
#include "evaluation/evaluate.h"
#include "inference/model_runtime.h"

namespace strata::cli {

// The model and how it is evaluated, of options and --set. ConfigError for what does not fit the model.
struct EvalSetup {
  inference::ModelRuntime runtime;
  config::RunConfig config;
  int64_t length = 0, stride = 0;
  bool documents = false;  // attention ends with a document
  bool causal = true;
};
EvalSetup eval_setup(const EvalOptions& options);

struct EvalCorpus {
  data::TokenCorpus corpus;
  int64_t bytes = 0;  // of the text behind it; 0: not known
};
EvalCorpus open_eval_tokens(const EvalSetup& setup, const std::string& pattern);
// The tokens of all texts, as a run has them that is given the same files.
EvalCorpus open_eval_text(const EvalSetup& setup, const std::string& pattern);

// `max_tokens`: of the corpus, from its start; 0: all.
data::EvalWindows eval_windows(const EvalSetup& setup, const data::TokenCorpus& corpus,
                               int64_t max_tokens = 0);
// Compiles program 0 for such windows, with room for as many as `most` at once, and loads the weights.
void load_for_evaluation(EvalSetup& setup, const data::EvalWindows& windows, int64_t most);

// DataError, naming the text, if no token of it was to be predicted: a loss of nothing is none.
void require_targets(const evaluation::EvalResult& result, const std::string& name);

}  // namespace strata::cli
