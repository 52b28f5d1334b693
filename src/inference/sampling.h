// Chooses the next token from logits, like transformers' generate() with the same options.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace strata::inference {

struct SamplingOptions {
  int64_t max_tokens = 100;
  double temperature = 1.0;  // 0: the most probable token
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;
  double min_p = 0.0;  // excludes tokens below this fraction of the highest probability
  double repetition_penalty = 1.0;
  uint64_t seed = 0;
  std::vector<int32_t> stop_ids = {};  // any of them ends the text; not part of the result
  int64_t vocab_limit = 0;             // ids from here on are padding and never chosen; 0: none
};

// The seed of one text among several. Depends only on its prompt and the number of equal prompts before it,
// so that a prompt's text does not depend on the other prompts.
uint64_t seed_of_text(uint64_t seed, std::string_view prompt, int64_t equal_before);

struct TokenWeight {
  int32_t id = 0;
  double weight = 0;  // a probability up to a common factor
};

// The distribution of the next token, most probable first: applies the penalty on tokens in `history`, then
// temperature, top-k (including ties with the last), top-p and min-p, each to the result of the previous.
// Temperature 0: only the most probable token. `logits` is used as working memory.
std::vector<TokenWeight> token_weights(std::span<float> logits, std::span<const int32_t> history,
                                       const SamplingOptions& options);

// Draws a token: a pure function of its arguments, with `draw` the number of the draw in its text.
int32_t sample_token(std::span<float> logits, std::span<const int32_t> history,
                     const SamplingOptions& options, uint64_t draw);

}  // namespace strata::inference
