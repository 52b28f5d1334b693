#include "data/tokenizer/byte_level.h"

#include <array>

#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct Alphabet {
  std::array<uint16_t, 256> character{};
  std::array<int16_t, 0x144> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte) byte = -1;
  unsigned next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const unsigned character = stands_for_itself(byte) ? byte : next++;
    alphabet.character[byte] = static_cast<uint16_t>(character);
    alphabet.byte[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();
static_assert(kAlphabet.character[' '] == 0x120 && kAlphabet.character[173] == 0x143);

}  // namespace

uint32_t byte_to_character(uint8_t byte) {
  return kAlphabet.character[byte];
}

std::optional<uint8_t> character_to_byte(uint32_t c) {
  if (c >= kAlphabet.byte.size() || kAlphabet.byte[c] < 0) return std::nullopt;
  return static_cast<uint8_t>(kAlphabet.byte[c]);
}

void append_mapped(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) append_utf8(out, kAlphabet.character[static_cast<uint8_t>(byte)]);
}

std::optional<std::string> unmap(std::string_view mapped) {
  std::string out;
  out.reserve(mapped.size());
  const char* at = mapped.data();
  const char* end = at + mapped.size();
  while (at < end) {
    const CodePoint c = decode_code_point(at, end);
    const auto byte = character_to_byte(c.value);
    if (!byte) return std::nullopt;
    out += static_cast<char>(*byte);
    at += c.size;
  }
  return out;
}

}  // namespace strata::data
