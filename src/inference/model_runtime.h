// Opens a trained model for evaluation or generation, for the verbs with --model.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "device/open/open.h"
#include "models/model.h"
#include "program/executor.h"

namespace strata::inference {

struct ModelRuntime {
  Path folder;  // the Hugging Face directory of --model
  models::ModelConfig model;
  std::optional<data::Tokenizer> tokenizer;
  std::unique_ptr<program::Executor> executor;
};

// How a model computes.
struct ComputeOptions {
  std::optional<DType> dtype = {};  // of activations; unset: the model's own (fp16 weights: fp32)
  int threads = 0;                  // 0: all threads of the process
  device::Kind device = device::Kind::kCpu;
};

struct RuntimeOptions {
  ComputeOptions compute = {};
  std::vector<program::Request> requests = {};
  int64_t cache_tokens = 0;     // for generation; 0: the model's positions, at most 4,096
  int64_t cache_sequences = 1;  // generated concurrently
};

// Reads config.json, the end tokens of generation_config.json and the tokenizer, but no weights.
ModelRuntime open_model(const std::string& model);
// The ids that end a text: from generation_config.json, else config.json, else the tokenizer's end of text.
std::vector<int32_t> stop_ids(const models::ModelConfig& model, const data::Tokenizer* tokenizer);
// Compiles the programs and loads the weights.
void load_runtime(ModelRuntime& runtime, const RuntimeOptions& options);

}  // namespace strata::inference
