// Inputs of strata eval --tokens or --text: a model, windows of tokens, a program.
#pragma once

#include <string>

#include "cli/actions.h"
#include "config/run_config.h"
#include "data/samples/eval_windows.h"
#include "evaluation/evaluate.h"
#include "inference/model_runtime.h"

namespace strata::cli {

// The model and its evaluation options, from the command line and --set. Throws ConfigError for options that
// do not fit the model.
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
  int64_t bytes = 0;  // of the tokenized text; 0: unknown
};
EvalCorpus open_eval_tokens(const EvalSetup& setup, const std::string& pattern);
// The tokens of all texts, as a run with the same files has them.
EvalCorpus open_eval_text(const EvalSetup& setup, const std::string& pattern);

// `max_tokens`: of the corpus, from its start; 0: all.
data::EvalWindows eval_windows(const EvalSetup& setup, const data::TokenCorpus& corpus,
                               int64_t max_tokens = 0);
// Compiles program 0 for these windows, with a batch of at most `most`, and loads the weights.
void load_for_evaluation(EvalSetup& setup, const data::EvalWindows& windows, int64_t most);

// Throws a DataError that names the text if none of its tokens was predicted: there is no loss then.
void require_targets(const evaluation::EvalResult& result, const std::string& name);

}  // namespace strata::cli
