// Compares the kernels of generation with those of training: a text goes through both, through one all at the
// same time and through the other token by token with the cache. In exact arithmetic the results are equal.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/executor.h"

namespace strata::inference {

struct Drift {
  int64_t tokens = 0;  // whose logits were compared
  // Of the distributions of the next token, Σ p · ln (p / q), p as in training, q as in generation.
  double mean_kl = 0, largest_kl = 0;
  double largest_logit = 0;  // difference of a logit
  // Difference of ln p of the text's own next token, as the loss has it and as generation.
  double largest_log_probability = 0;
  int64_t other_choices = 0;  // tokens for which another one is the most probable
};

struct DriftText {
  std::vector<int32_t> tokens;        // of an encoder-decoder the decoder's, which begins with start_id
  int64_t prompt = 1;                 // tokens of these that are read together before the rest
  std::vector<int32_t> encoder = {};  // what an encoder reads, of the program's length
};

// Programs to measure with, the training one first: of texts of `length` tokens.
std::vector<program::Request> drift_requests(int64_t length, int64_t encoder_length = 0);

// `training` has program 0 of drift_requests, `generation` the others; it may be the same executor. Weights
// are encoded. Texts are of the requests' length.
//
// Training never has a row of logits whole: they are put together in fp64 from what its head reads and the
// head's weights, rounded as in the head's matmul.
Drift measure_drift(program::Executor& training, program::Executor& generation,
                    std::span<const DriftText> texts);

}  // namespace strata::inference
