#include "data/tokens/token_type.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace strata::data {

static_assert(std::endian::native == std::endian::little, "token files are read without swapping bytes");

int64_t token_bytes(TokenType type) {
  switch (type) {
    case TokenType::kU8:
      return 1;
    case TokenType::kU16:
    case TokenType::kI16:
      return 2;
    case TokenType::kU32:
    case TokenType::kI32:
      return 4;
    case TokenType::kI64:
      return 8;
  }
  return 0;
}

namespace {

struct TypeName {
  TokenType type;
  std::string_view name, long_name, numpy_name;
};
constexpr TypeName kNames[] = {
    {TokenType::kU8, "u8", "uint8", "|u1"},   {TokenType::kU16, "u16", "uint16", "<u2"},
    {TokenType::kI16, "i16", "int16", "<i2"}, {TokenType::kU32, "u32", "uint32", "<u4"},
    {TokenType::kI32, "i32", "int32", "<i4"}, {TokenType::kI64, "i64", "int64", "<i8"},
};

template <typename T>
int64_t convert(const std::byte* from, int64_t n, int64_t limit, int32_t* out, int64_t* found) {
  // Blocks keep the check out of the inner loop, so that it vectorises.
  constexpr int64_t kBlock = 1024;
  T block[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    std::memcpy(block, from + begin * static_cast<int64_t>(sizeof(T)),
                static_cast<size_t>(count) * sizeof(T));
    // Widened to unsigned, a negative id is a large one: one comparison finds both errors.
    using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    Wide largest = 0;
    for (int64_t i = 0; i < count; ++i) {
      largest = std::max(largest, static_cast<Wide>(block[i]));
      out[begin + i] = static_cast<int32_t>(block[i]);
    }
    if (largest < static_cast<uint64_t>(limit)) continue;
    for (int64_t i = 0; i < count; ++i) {
      const auto id = static_cast<int64_t>(block[i]);
      if (id < 0 || id >= limit) {
        *found = id;
        return begin + i;
      }
    }
  }
  return -1;
}

}  // namespace

std::string_view token_type_name(TokenType type) {
  for (const auto& entry : kNames) {
    if (entry.type == type) return entry.name;
  }
  return "?";
}

std::optional<TokenType> parse_token_type(std::string_view name) {
  for (const auto& entry : kNames) {
    if (name == entry.name || name == entry.long_name || name == entry.numpy_name) return entry.type;
  }
  return std::nullopt;
}

int64_t convert_tokens(TokenType type, const std::byte* from, int64_t n, int64_t limit, int32_t* out,
                       int64_t* found) {
  switch (type) {
    case TokenType::kU8:
      return convert<uint8_t>(from, n, limit, out, found);
    case TokenType::kU16:
      return convert<uint16_t>(from, n, limit, out, found);
    case TokenType::kI16:
      return convert<int16_t>(from, n, limit, out, found);
    case TokenType::kU32:
      return convert<uint32_t>(from, n, limit, out, found);
    case TokenType::kI32:
      return convert<int32_t>(from, n, limit, out, found);
    case TokenType::kI64:
      return convert<int64_t>(from, n, limit, out, found);
  }
  return -1;
}

}  // namespace strata::data
