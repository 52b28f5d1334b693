// A tokenizer as tokenize_corpus takes it. Only this header of the room knows the tokenizers' library.
#pragma once

#include "base/hash.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokens/tokenize.h"

namespace strata::data {

// Keeps a copy of the tokenizer, which is cheap. Special tokens written out in a text are recognised, as
// Hugging Face tokenizers does.
inline TextEncoder text_encoder(const Tokenizer& tokenizer) {
  TextEncoder encoder;
  encoder.encode = [tokenizer](std::string_view text, std::vector<int32_t>& ids) {
    tokenizer.encode(text, ids);
  };
  encoder.next_cut = [tokenizer](std::string_view text, size_t from) {
    return tokenizer.next_cut(text, from);
  };
  encoder.vocab_size = tokenizer.vocab_size();
  encoder.begin_of_text.assign(tokenizer.prefix_ids().begin(), tokenizer.prefix_ids().end());
  encoder.end_of_text = tokenizer.end_of_text_id();
  encoder.hash = to_hex(tokenizer.hash());
  return encoder;
}

}  // namespace strata::data
