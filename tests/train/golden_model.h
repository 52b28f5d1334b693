// A model of tests/models/golden in an executor, and how far results are from what transformers gave.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/parallel.h"
#include "checkpoint/huggingface.h"
#include "program/executor.h"
#include "train/generate.h"
#include "train/weights.h"

namespace strata::train::golden {

inline constexpr const char* kModels[] = {
    "llama-untied", "llama-tied", "llama-biases-yarn", "mistral",         "qwen2",
    "qwen3",        "olmo",       "olmo-clip",         "olmo2",           "gemma2",
    "gemma3",       "phi3",       "gpt-neox",          "gpt-neox-serial", "gpt2",
    "bert",         "t5",         "t5-gated"};

using program::Executor;
using program::Kind;
using program::Recompute;
using program::Segment;

inline constexpr int64_t kBatch = 2;
inline constexpr int64_t kLength = 32;

struct Golden {
  explicit Golden(const std::string& name)
      : folder(Path(STRATA_GOLDEN_MODELS) / name),
        source(checkpoint::open_tensor_file(folder / "expected.safetensors")),
        model(models::read_config_json(checkpoint::read_config_json(folder), name)) {}

  std::vector<float> floats(const std::string& name) const { return read<float>(name, DType::kF32); }
  std::vector<int32_t> integers(const std::string& name) const { return read<int32_t>(name, DType::kI32); }
  bool has(const std::string& name) const { return source.tensors.contains(name); }
  // Models with an encoder, whose files spell every input out (tools/golden/make_encoder_golden.py).
  bool spells_inputs() const { return has("inputs/tokens"); }
  int64_t length(const std::string& input) const { return source.tensors.at(input).tensor->shape[1]; }

  Path folder;
  checkpoint::TensorSource source;
  models::ModelConfig model;

 private:
  template <typename T>
  std::vector<T> read(const std::string& name, DType dtype) const {
    const auto& entry = source.tensors.at(name);
    std::vector<T> out(static_cast<size_t>(entry.tensor->shape.elements()));
    checkpoint::read_tensor(*entry.file, *entry.tensor, {name, entry.tensor->shape, dtype, out.data()});
    return out;
  }
};

// Programs with the saved weights, encoded.
std::unique_ptr<Executor> make_executor(const Golden& golden, std::vector<program::Request> requests,
                                        Recompute recompute = Recompute::kNone,
                                        DType activations = DType::kF32);
int32_t* input(Executor& executor, size_t index, const char* name, int64_t micro_batch = 0);
// Rows [first, first + sequences) of tokens[·][33] as plain windows.
void fill_stream(Executor& executor, size_t index, const int32_t* tokens, int64_t first, int64_t sequences,
                 int64_t micro_batch);
// Rows of the golden batch, of that with several documents in a row, and of a batch of the AdamW steps.
void fill_plain(const Golden& golden, Executor& executor, int64_t first = 0, int64_t sequences = kBatch,
                int64_t micro_batch = 0);
void fill_documents(const Golden& golden, Executor& executor);
void fill_step(const Golden& golden, Executor& executor, size_t step);
program::Request train_request(const Golden& golden, int64_t sequences, int64_t micro_batches);
double mean_loss(const Executor& executor);
// The gradient of a file's tensor, as the mean over tokens.
std::vector<float> gradient_of(const Golden& golden, const Executor& executor, const std::string& file_name);
double norm(const std::vector<float>& x);
// What differences of a gradient are measured by: its norm, but no less than one hundredth of a usual one. A
// bias of keys that do not rotate has a gradient of 0, as it moves all scores of a row alike; what both sides
// show of it is rounding.
inline constexpr double kLeastNorm = 1e-2;
inline double scale_of(const std::vector<float>& gradient) {
  return std::max(norm(gradient), kLeastNorm);
}
double distance(const std::vector<float>& a, const std::vector<float>& b);
// The greatest difference of a logit: of a decoder in prefill and then token by token against the cache, else
// of the logarithm of a token's probability over whole sequences.
double logits_error(const Golden& golden);
// The text that the greedy prompt (of an encoder-decoder: its source) gives, as long as the golden one.
std::vector<int32_t> greedy_text(const Golden& golden);
// Losses and gradient norms of AdamW steps from the saved weights, as the golden file took them.
struct Curve {
  std::vector<double> losses, norms;
};
Curve adamw_curve(const Golden& golden);

}  // namespace strata::train::golden
