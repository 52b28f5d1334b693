// The implementation of Model.
#pragma once

#include <optional>
#include <string>

#include "config/run_config.h"
#include "inference/model_runtime.h"
#include "library/evaluation.h"
#include "library/text_generation.h"
#include "strata/model.h"

namespace strata {

struct Model::Impl {
  Log log;
  std::string folder;
  inference::ModelRuntime runtime;
  config::RunConfig config;  // of ModelOptions::sets
  // What runtime.executor computes: one of the two, or neither yet.
  std::optional<library::TextGenerator> generating;
  std::optional<library::Evaluation> evaluating;

  const data::Tokenizer& tokenizer() const;  // kConfig if the model has none
  library::TextGenerator& text_generator();
  library::Evaluation& evaluation_of(const EvalOptions& options);
  EvalReport evaluate(library::Evaluation& evaluation, const library::EvalCorpus& corpus,
                      const std::string& name, const EvalOptions& options);
};

}  // namespace strata
