// A trained model ready to evaluate or to write text: for the verbs that take --model.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "models/model.h"
#include "program/executor.h"

namespace strata::inference {

struct ModelRuntime {
  Path folder;  // the Hugging Face directory of --model
  models::ModelConfig model;
  std::optional<data::Tokenizer> tokenizer;
  std::unique_ptr<program::Executor> executor;
};

// With what a model computes.
struct ComputeOptions {
  std::optional<DType> dtype = {};  // of activations; unset: the model's own (fp16 weights: fp32)
  int threads = 0;                  // 0: as many as the process has
  bool reference_kernels = false;
};

struct RuntimeOptions {
  ComputeOptions compute = {};
  std::vector<program::Request> requests = {};
  int64_t cache_tokens = 0;     // for generating; 0: as many as the model has positions, at most 4,096
  int64_t cache_sequences = 1;  // that are written concurrently
};

// Reads config.json, generation_config.json's ends of a text and the tokenizer; no weights yet.
ModelRuntime open_model(const std::string& model);
// The ids that end a text: those of generation_config.json, else of config.json, else the tokenizer's end of
// text.
std::vector<int32_t> stop_ids(const models::ModelConfig& model, const data::Tokenizer* tokenizer);
// Compiles the programs and loads the weights.
void load_runtime(ModelRuntime& runtime, const RuntimeOptions& options);

}  // namespace strata::inference
