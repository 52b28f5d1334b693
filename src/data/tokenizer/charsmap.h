// The table of character rewritings that SentencePiece models carry ("precompiled_charsmap"): a double-array
// trie of texts, each with the text that replaces it. Layout, little-endian: u32 size of the trie in bytes,
// the trie's 32-bit units, then the replacements, each ended by a zero byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

class Charsmap {
 public:
  Charsmap() = default;
  // An empty blob maps nothing. DataError naming `where` when the blob is damaged.
  Charsmap(std::string_view blob, const std::string& where);

  bool empty() const { return units_.empty(); }

  struct Match {
    size_t size;  // of the text that is replaced
    std::string_view replacement;
  };
  std::optional<Match> longest(std::string_view text) const;   // as SentencePiece asks
  std::optional<Match> shortest(std::string_view text) const;  // as the Hugging Face library asks

 private:
  template <typename Visit>
  void walk(std::string_view text, Visit visit) const;
  std::string_view replacement(uint32_t offset) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace strata::data
