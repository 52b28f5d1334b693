// A trained model ready to evaluate or to write text: for the verbs that take --model.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/tokenizer/tokenizer.h"
#include "models/model.h"
#include "program/executor.h"
#include "train/config/run_config.h"

namespace strata::train {

struct ModelRuntime {
  Path folder;  // the Hugging Face directory behind --model
  models::ModelConfig model;
  std::optional<data::Tokenizer> tokenizer;
  std::unique_ptr<program::Executor> executor;
};

struct RuntimeOptions {
  std::string model;  // as checkpoint::resolve_model takes it
  RunConfig config;   // precision, device
  std::vector<program::Request> requests = {};
  int64_t cache_tokens = 0;  // for generating; 0: as many as the model has positions, at most 4,096
  int64_t cache_texts = 1;   // that are written at once
};

// Reads config.json and the tokenizer; no weights yet.
ModelRuntime open_model(const std::string& model);
// Compiles the programs and loads the weights. The model's own dtype computes unless precision.compute says
// otherwise (fp16 weights: fp32).
void load_runtime(ModelRuntime& runtime, const RuntimeOptions& options);

// Keys that --set may change for the verbs that take --model; the rest of the configuration has its defaults.
RunConfig config_of_sets(const std::vector<std::string>& sets);

}  // namespace strata::train
