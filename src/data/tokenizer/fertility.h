// How much text a token holds: the figures by which tokenizers are compared.
#pragma once

#include <cstdint>
#include <string_view>

#include "data/tokenizer/tokenizer.h"

namespace strata::data {

struct Fertility {
  int64_t documents = 0;
  int64_t bytes = 0;
  int64_t words = 0;  // runs without white space
  int64_t tokens = 0;

  double bytes_per_token() const {
    return tokens > 0 ? static_cast<double>(bytes) / static_cast<double>(tokens) : 0;
  }
  double tokens_per_word() const {
    return words > 0 ? static_cast<double>(tokens) / static_cast<double>(words) : 0;
  }
  void add(const Fertility& other);
};

int64_t count_spaced_words(std::string_view text);

// The fertility of one document, without the tokens that a post-processor adds.
Fertility measure_fertility(const Tokenizer& tokenizer, std::string_view text);

}  // namespace strata::data
