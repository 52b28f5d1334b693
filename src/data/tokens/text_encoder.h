// Adapts a tokenizer to tokenize_corpus. Only this header of the module knows the tokenizers' library.
#pragma once

#include "base/hash.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokens/tokenize.h"

namespace strata::data {

// Keeps a copy of the tokenizer, which is cheap. Special tokens written out in a text are recognised, as
// Hugging Face tokenizers does, unless they are to be text.
inline TextEncoder text_encoder(const Tokenizer& tokenizer,
                                SpecialInText special_in_text = SpecialInText::kToken) {
  TextEncoder encoder;
  const bool as_text = special_in_text == SpecialInText::kText;
  encoder.encode = [tokenizer, as_text](std::string_view text, std::vector<int32_t>& ids,
                                        SpecialCounts& special) {
    tokenizer.encode(text, ids, {.special_as_text = as_text, .special = &special});
  };
  encoder.next_cut = [tokenizer](std::string_view text, size_t from) {
    return tokenizer.next_cut(text, from);
  };
  encoder.vocab_size = tokenizer.vocab_size();
  encoder.special_in_text = special_in_text;
  encoder.token = [tokenizer](int32_t id) { return std::string(tokenizer.id_to_token(id)); };
  encoder.begin_of_text = tokenizer.ends().begin;
  encoder.end_of_text = tokenizer.ends().end;
  encoder.hash = to_hex(tokenizer.hash());
  return encoder;
}

}  // namespace strata::data
