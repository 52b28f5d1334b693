#include "data/filter/repair.h"

#include <utf8proc.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "data/text/characters.h"

namespace strata::data {
namespace {

// Windows-1252 at 0x80 to 0x9F; the five free bytes stand for the control characters.
constexpr std::array<uint16_t, 32> kWindows = {0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021,
                                               0x2C6,  0x2030, 0x160,  0x2039, 0x152,  0x8D,   0x17D,  0x8F,
                                               0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                               0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};

// The byte of a code point in Windows-1252 (free bytes and C1 controls as themselves), -1 for none.
int windows_byte(uint32_t c) {
  if (c < 0x100) return static_cast<int>(c);
  for (size_t i = 0; i < kWindows.size(); ++i) {
    if (kWindows[i] == c) return static_cast<int>(0x80 + i);
  }
  return -1;
}

struct Misread {
  size_t size = 0;  // bytes of the text; 0: none
  uint32_t value = 0;
  int bytes = 0;  // of the sequence that was misread
};

// A UTF-8 sequence of two to four bytes that was read as Windows-1252, at `at`.
Misread misread_at(const char* at, const char* end) {
  const Character first = decode_utf8(at, end);
  const int lead = windows_byte(first.value);
  if (lead < 0xC2 || lead > 0xF4) return {};
  const int bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t value = static_cast<uint32_t>(lead) & (bytes == 2 ? 0x1Fu : bytes == 3 ? 0xFu : 7u);
  const char* next = at + first.size;
  for (int i = 1; i < bytes; ++i) {
    if (next >= end) return {};
    const Character c = decode_utf8(next, end);
    const int byte = windows_byte(c.value);
    if (byte < 0x80 || byte > 0xBF) return {};
    value = value << 6 | (static_cast<uint32_t>(byte) & 0x3F);
    next += c.size;
  }
  const uint32_t least = bytes == 2 ? 0x80 : bytes == 3 ? 0x800 : 0x10000;
  if (value < least || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return {};
  return {static_cast<size_t>(next - at), value, bytes};
}

bool is_removed_control(uint32_t c) {
  return c <= 8 || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || (c >= 0x206A && c <= 0x206F) ||
         c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFC);
}

// Bytes of ESC [ digits and semicolons, then a letter; 0 for none.
size_t escape_size(const char* at, const char* end) {
  if (end - at < 3 || at[0] != 0x1B || at[1] != '[') return 0;
  const char* p = at + 2;
  while (p < end && ((*p >= '0' && *p <= '9') || *p == ';')) ++p;
  return p < end && ((*p | 0x20) >= 'a' && (*p | 0x20) <= 'z') ? static_cast<size_t>(p + 1 - at) : 0;
}

bool may_need_repair(std::string_view text, const Repairs& repairs) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < 0x20) {
      if (byte != '\n' && byte != '\t' && (byte != '\r' || repairs.line_breaks)) return true;
    } else if (byte == 0x7F || byte == 0xC2 || byte == 0xC3 || byte == 0xE2 || byte == 0xEF) {
      // DEL, Latin-1, and where the format characters and separators are.
      return true;
    }
  }
  return false;
}

}  // namespace

bool repair(std::string_view text, const Repairs& repairs, std::string& out) {
  if (!may_need_repair(text, repairs)) return false;
  std::string fixed;
  fixed.reserve(text.size());
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    const Character c = decode_utf8(at, end);
    size_t size = c.size;
    if (c.value == 0x1B && repairs.terminal_escapes && escape_size(at, end) > 0) {
      at += escape_size(at, end);
      continue;
    }
    if (repairs.line_breaks &&
        (c.value == '\r' || c.value == 0x2028 || c.value == 0x2029 || c.value == 0x85)) {
      if (c.value == '\r' && at + 1 < end && at[1] == '\n') ++size;
      fixed += '\n';
      at += size;
      continue;
    }
    if (repairs.encoding && c.value >= 0xC2 && c.value <= 0xF4) {
      Misread misread = misread_at(at, end);
      const bool alone = misread.bytes == 2 && c.value > 0xC3;
      const char* next = at + misread.size;
      if (misread.size > 0 && (!alone || (next < end && misread_at(next, end).size > 0))) {
        // All sequences next to one another.
        do {
          append_code_point(fixed, misread.value);
          at += misread.size;
          misread = at < end ? misread_at(at, end) : Misread{};
        } while (misread.size > 0);
        continue;
      }
    }
    if (repairs.c1_controls && c.value >= 0x80 && c.value < 0xA0) {
      append_code_point(fixed, kWindows[c.value - 0x80]);
    } else if (!(repairs.control_chars && is_removed_control(c.value))) {
      fixed.append(at, size);
    }
    at += size;
  }
  if (fixed == text) return false;
  out.swap(fixed);
  return true;
}

bool normalize_text(std::string_view text, std::string_view form, std::string& out) {
  int options = UTF8PROC_STABLE;
  const bool composed = form == "NFC" || form == "NFKC";
  options |= composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == "NFKC" || form == "NFKD") options |= UTF8PROC_COMPAT;
  // In NFC nothing below U+0300 changes, nor in the common ranges after it.
  bool may_change = false;
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at < end && !may_change;) {
    if (static_cast<uint8_t>(*at) < 0x80) {
      ++at;
      continue;
    }
    const Character c = decode_utf8(at, end);
    at += c.size;
    const bool stable =
        form == "NFC" &&
        (c.value < 0x300 || (c.value >= 0x400 && c.value < 0x483) ||
         (c.value >= 0x2010 && c.value < 0x2100) || (c.value >= 0x2190 && c.value < 0x2200) ||
         (c.value >= 0x3000 && c.value < 0x302A) || (c.value >= 0x4E00 && c.value < 0xA000) ||
         (c.value >= 0xFF00 && c.value < 0xFFF0) || (c.value >= 0x1F300 && c.value < 0x1FB00));
    may_change = !stable;
  }
  if (!may_change) return false;
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &made,
                                             static_cast<utf8proc_option_t>(options));
  if (size < 0) return false;  // not UTF-8: unchanged
  const std::string_view normal(reinterpret_cast<const char*>(made), static_cast<size_t>(size));
  const bool changed = normal != text;
  if (changed) out.assign(normal);
  std::free(made);
  return changed;
}

}  // namespace strata::data
