// Sampling text from a model: prefill of the prompt in chunks, then one token at a time against a key–value
// cache.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "program/executor.h"

namespace strata::train {

struct SamplingOptions {
  int64_t max_tokens = 100;
  double temperature = 1.0;  // 0: the most probable token
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;
  double min_p = 0.0;  // tokens below this share of the most probable one's probability are left out
  double repetition_penalty = 1.0;
  uint64_t seed = 0;
  std::optional<int32_t> stop_id = {};  // ends the text; not part of the result
  int64_t vocab_limit = 0;              // ids from here on are padding of the table and never chosen; 0: none
};

// Chooses a token: penalty on `history`, temperature, then top-k, top-p and min-p in transformers' order; a
// pure function of its arguments. `logits` is used as working memory.
int32_t sample_token(std::span<float> logits, std::span<const int32_t> history,
                     const SamplingOptions& options, uint64_t draw);

// The programs that a generator needs, one sequence at a time; chunks of `chunk` tokens in prefill.
std::vector<program::Request> generation_requests(int64_t chunk);
// Room of the cache for texts of at most `tokens` tokens: whole chunks.
int64_t cache_room_for(int64_t tokens, int64_t chunk);
inline constexpr int64_t kPrefillChunk = 64;

class Generator {
 public:
  // Programs `prefill` and `decode` of the executor were made from generation_requests.
  Generator(program::Executor& executor, size_t prefill, size_t decode);

  // Appends at most max_tokens tokens to the prompt and returns them. Stops at stop_id, when the cache or the
  // model's positions are full, or when `on_token` returns false. An empty prompt is a ConfigError.
  std::vector<int32_t> generate(std::span<const int32_t> prompt, const SamplingOptions& options,
                                const std::function<bool(int32_t)>& on_token = {});

  int64_t room() const { return room_; }

 private:
  // Feeds tokens at `position` and leaves the logits of the last one.
  void feed(size_t program, std::span<const int32_t> tokens, int64_t position);

  program::Executor& executor_;
  size_t prefill_, decode_;
  int64_t chunk_, room_;
  int64_t positions_;  // that the model knows
};

}  // namespace strata::train
