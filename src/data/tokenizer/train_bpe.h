// Training of a byte-level BPE: the same merges and ids as the trainer of the Hugging Face library (maximum
// count first, of equal counts the smallest pair of ids), for any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/tokenizer/count_words.h"

namespace strata::data {

struct TrainOptions {
  int64_t vocab_size = 0;                                       // special tokens and the 256 bytes included
  int64_t min_frequency = 2;                                    // pairs that occur less often are not merged
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // ids from 0, in this order
  std::string pattern = "gpt2";  // how text is split: a name that split_preset knows
  // The special tokens that encoding with special tokens puts around a text; empty: none.
  std::string begin_of_text = {}, end_of_text = {};
  // Called many times a second between chunks of work; an exception from it ends the training.
  std::function<void()> check = [] {};
};

struct TrainedTokenizer {
  std::string json;        // a tokenizer.json, as the Hugging Face library writes it
  int64_t vocab_size = 0;  // below the requested size if no pair is frequent enough
  int64_t merges = 0;
  int64_t distinct_pieces = 0;
  int64_t bytes = 0;
};

// Text is taken line by line with its line ending, so that no piece crosses a line's end. ConfigError: an
// unknown pattern, a vocabulary that does not hold the special tokens and all bytes. DataError: no text at
// all.
TrainedTokenizer train_bpe(TextSource texts, const TrainOptions& options);

}  // namespace strata::data
