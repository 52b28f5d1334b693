#include "data/text/words.h"

#include "data/text/characters.h"

namespace strata::data {
namespace {

// The properties of a word, one bit each, so that two operations per character collect them.
enum WordBit : uint8_t { kStop = 1, kAlpha = 2, kSymbol = 4, kPunctuation = 8, kEndMark = 16 };

uint8_t word_bits(uint8_t character) {
  return static_cast<uint8_t>(
      ((character & kAlphaBit) ? kAlpha : 0) | ((character & kSymbolBits) ? kSymbol : 0) |
      ((character & kPunctuationCategory) ? kPunctuation : 0) | ((character & kEndMarkBit) ? kEndMark : 0));
}

// WordBits of bytes: white space and bytes beyond ASCII stop a word.
struct ByteTable {
  uint8_t bits[256];
  ByteTable() : bits() {
    const uint8_t* table = character_table();
    for (int b = 0; b < 256; ++b)
      bits[b] = b < 0x80 && !(table[b] & kSpaceBit) ? word_bits(table[b]) : uint8_t{kStop};
  }
};

const ByteTable& byte_table() {
  static const ByteTable table;
  return table;
}

// Bits that some, and that all characters of a word have.
struct Gathered {
  uint8_t any = 0, all = 0xFF;
  void add(uint8_t bits) {
    any |= bits;
    all &= bits;
  }
};

Word finish(std::string_view bytes, uint32_t code_points, const Gathered& gathered) {
  return {.bytes = bytes,
          .code_points = code_points,
          .symbol = (gathered.all & kSymbol) != 0,
          .alpha = (gathered.any & kAlpha) != 0,
          .punctuation = (gathered.all & kPunctuation) != 0,
          .end_mark = code_points == 1 && (gathered.all & kEndMark) != 0};
}

}  // namespace

Word make_word(std::string_view bytes) {
  const uint8_t* table = character_table();
  Gathered gathered;
  uint32_t code_points = 0;
  const char* end = bytes.data() + bytes.size();
  for (const char* at = bytes.data(); at < end; ++code_points) {
    const Character c = decode_utf8(at, end);
    gathered.add(word_bits(table[c.value]));
    at += c.size;
  }
  return finish(bytes, code_points, gathered);
}

void split_whitespace(std::string_view text, std::vector<Word>& words) {
  const uint8_t* bytes = byte_table().bits;
  const uint8_t* table = character_table();
  const char* at = text.data();
  const char* end = at + text.size();
  const auto bits_at = [bytes](const char* p) { return bytes[static_cast<uint8_t>(*p)]; };
  while (at < end) {
    // ASCII white space, or a byte beyond ASCII, which may be white space too.
    if (bits_at(at) & kStop) {
      if (static_cast<uint8_t>(*at) < 0x80) {
        ++at;
        continue;
      }
      const Character c = decode_utf8(at, end);
      if (table[c.value] & kSpaceBit) {
        at += c.size;
        continue;
      }
    }
    const char* begin = at;
    Gathered gathered;
    uint8_t bits = 0;
    while (at < end && !((bits = bits_at(at)) & kStop)) {
      gathered.add(bits);
      ++at;
    }
    uint32_t code_points = static_cast<uint32_t>(at - begin);
    if (at < end && static_cast<uint8_t>(*at) >= 0x80) [[unlikely]] {
      do {
        const Character c = decode_utf8(at, end);
        const uint8_t wide = table[c.value];
        if (wide & kSpaceBit) break;
        gathered.add(word_bits(wide));
        at += c.size;
        ++code_points;
      } while (at < end);
    }
    words.push_back(finish({begin, static_cast<size_t>(at - begin)}, code_points, gathered));
  }
}

WordSplitter::WordSplitter() {
  const uint8_t* table = character_table();
  for (uint8_t c = 0; c < 0x80; ++c) {
    if (table[c] & kSpaceBit) spaces_.add(c);
    if (table[c] & kAlphaBit) letters_.add(c);
  }
}

void WordSplitter::split(std::string_view text, std::vector<Word>& words) {
  find_runs(text, spaces_, edges_);
  const bool wide = mark_bytes(text, {}, true, wide_bits_);
  mark_bytes(text, letters_, false, letter_bits_);
  const uint8_t* bytes = byte_table().bits;
  size_t number = words.size();
  words.resize(number + edges_.size() / 2);
  for (size_t i = 0; i < edges_.size(); i += 2) {
    const size_t begin = edges_[i], end = edges_[i + 1];
    const std::string_view word = text.substr(begin, end - begin);
    if (wide && any_marked(wide_bits_.data(), begin, end)) {
      // It may hold white space that is not ASCII, and so be none or several.
      pieces_.clear();
      split_whitespace(word, pieces_);
      const size_t needed = number + pieces_.size() + (edges_.size() - i) / 2;
      if (words.size() < needed) words.resize(needed + words.size() / 8);
      for (const Word& piece : pieces_) words[number++] = piece;
      continue;
    }
    Word& out = words[number++];
    const auto code_points = static_cast<uint32_t>(word.size());
    if (any_marked(letter_bits_.data(), begin, end)) {
      out = {.bytes = word, .code_points = code_points, .alpha = true};
      continue;
    }
    Gathered gathered;
    for (const char c : word) gathered.add(bytes[static_cast<uint8_t>(c)]);
    out = finish(word, code_points, gathered);
  }
  words.resize(number);
}

}  // namespace strata::data
