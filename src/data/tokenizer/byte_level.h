// The byte-level alphabet of GPT-2: every byte is written as one printable character. Bytes 33–126, 161–172
// and 174–255 stand for themselves; the other 68 are U+0100 … U+0143 in byte order (a space is U+0120).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::data {

uint32_t byte_to_character(uint8_t byte);
std::optional<uint8_t> character_to_byte(uint32_t code_point);

void append_mapped(std::string& out, std::string_view bytes);  // bytes → UTF-8 of their characters
// The bytes that a mapped text stands for; nothing when it holds a character outside the alphabet.
std::optional<std::string> unmap(std::string_view mapped);

}  // namespace strata::data
