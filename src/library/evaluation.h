// Mean losses of a model on tokens and texts: shared by the library and the command line.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "data/samples/eval_windows.h"
#include "evaluation/evaluate.h"
#include "inference/model_runtime.h"

namespace strata::library {

struct EvalSettings {
  int64_t sequence_length = 0;         // targets of a window; 0: 512, or all positions of a model with fewer
  std::optional<int64_t> stride = {};  // unset: the sequence length
  bool operator==(const EvalSettings&) const = default;
};

struct EvalCorpus {
  data::TokenCorpus corpus;
  int64_t bytes = 0;  // of the tokenized text; 0: unknown
};

class Evaluation {
 public:
  // `config`: of the --set of a verb with --model. ConfigError for settings that do not fit the model. `runtime` must
  // outlive this object, which loads and replaces its executor.
  Evaluation(inference::ModelRuntime& runtime, const config::RunConfig& config, const EvalSettings& settings);

  EvalCorpus open_tokens(const std::string& pattern) const;
  // The tokens of all texts, as a run with the same files has them.
  EvalCorpus open_text(const std::string& pattern) const;
  EvalCorpus from_text(std::string_view text) const;

  // `max_tokens`: of the corpus, from its start; 0: all.
  data::EvalWindows windows(const data::TokenCorpus& corpus, int64_t max_tokens = 0) const;
  // Compiles program 0 for these windows, with a batch of at most `most`, and loads the weights, unless they are.
  void load(const data::EvalWindows& windows, int64_t most);
  evaluation::EvalResult measure(const data::EvalWindows& windows,
                                 const std::function<bool(double done)>& go_on);

  inference::ModelRuntime& runtime() const { return runtime_; }
  const config::RunConfig& config() const { return config_; }
  const std::optional<data::Tokenizer>& tokenizer() const { return tokenizer_; }  // with the configured ends
  bool causal() const { return causal_; }
  bool has(const EvalSettings& settings) const { return settings == settings_; }

 private:
  EvalCorpus checked(data::TokenCorpus corpus, int64_t bytes = 0) const;
  data::TokenFileOptions file_options() const;
  EvalCorpus tokenized(const std::string& name,
                       const std::function<void(const std::function<void(std::string_view)>&)>& read) const;

  inference::ModelRuntime& runtime_;
  config::RunConfig config_;
  EvalSettings settings_;
  std::optional<data::Tokenizer> tokenizer_;
  int64_t length_ = 0, stride_ = 0;
  bool documents_ = false;  // attention ends with a document
  bool causal_ = true;
  int64_t loaded_sequences_ = 0;  // of program 0; 0: not loaded
};

// Throws a DataError that names the text if none of its tokens was predicted: there is no loss then.
void require_targets(const evaluation::EvalResult& result, const std::string& name);

}  // namespace strata::library
