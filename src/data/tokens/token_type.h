// How one token id is stored in a token file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace strata::data {

enum class TokenType : uint8_t { kU8, kU16, kI16, kU32, kI32, kI64 };

int64_t token_bytes(TokenType type);
std::string_view token_type_name(TokenType type);                  // "u16"
std::optional<TokenType> parse_token_type(std::string_view name);  // "u16", "uint16" or "<u2"
inline TokenType token_type_for(int64_t vocab_size) {              // of headerless files and of .ds
  return vocab_size <= 65536 ? TokenType::kU16 : TokenType::kU32;
}

// Copies n ids to out. Returns the index of the first id outside [0, limit), or -1 when all are inside; that
// id's value is then in *found. `from` needs no alignment.
int64_t convert_tokens(TokenType type, const std::byte* from, int64_t n, int64_t limit, int32_t* out,
                       int64_t* found);

}  // namespace strata::data
