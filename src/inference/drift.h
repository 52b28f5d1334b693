// Compares the kernels of generation with those of training: a text goes through training all at the same
// time, and through generation token by token with the cache. In exact arithmetic the results are equal.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/executor.h"

namespace strata::inference {

struct Drift {
  int64_t tokens = 0;  // with compared logits
  // KL divergence of the next token, Σ p · ln (p / q), with p from training and q from generation.
  double mean_kl = 0, largest_kl = 0;
  double largest_logit = 0;  // difference of a logit
  // Difference of ln p of the text's own next token between the loss and generation.
  double largest_log_probability = 0;
  int64_t other_choices = 0;  // tokens with another most probable next token
};

struct DriftText {
  std::vector<int32_t> tokens;        // for an encoder-decoder the decoder's, beginning with start_id
  int64_t prompt = 1;                 // number of tokens prefilled together before the rest
  std::vector<int32_t> encoder = {};  // the encoder's tokens, of the program's length
};

// The programs for texts of `length` tokens, the training program first.
std::vector<program::Request> drift_requests(int64_t length, int64_t encoder_length = 0);

// `training` has program 0 of drift_requests, `generation` the others; both may be the same executor. Their
// weights must be packed, and the texts have the requests' length.
//
// Training never holds a whole row of logits: they are computed in fp64 from the head's input and weights,
// rounded as in the head's matmul.
Drift measure_drift(program::Executor& training, program::Executor& generation,
                    std::span<const DriftText> texts);

}  // namespace strata::inference
