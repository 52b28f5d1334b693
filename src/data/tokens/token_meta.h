// FILE.json next to a headerless FILE.bin: the facts that its bytes do not contain.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/file.h"
#include "data/tokens/token_type.h"

namespace strata::data {

// Keys: "dtype", "vocab_size", "tokenizer_hash", "end_of_text_id", "documents", "tokens"; each may be absent.
struct TokenMeta {
  std::optional<TokenType> type{};
  int64_t vocab_size = 0;
  std::string tokenizer_hash{};
  std::string tokenizer_name{};  // of a .ds.metadata; FILE.json has none
  std::optional<int32_t> end_of_text{};
  std::optional<int64_t> documents{};
  std::optional<int64_t> tokens{};
};

// DataError for a file that is not JSON, or a key of another type than expected; other keys are passed over.
TokenMeta read_token_meta(const Path& path);

}  // namespace strata::data
