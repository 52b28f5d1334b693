// Tokens that are found in the text before anything else: special tokens and added words, by the rules of the
// Hugging Face library (leftmost, longest; single_word, lstrip, rstrip; raw text first, then normalized
// text).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/special_tokens.h"

namespace strata::data {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;  // looked for in the normalized text, itself normalized
  bool special = false;
  bool in_text = true;            // false: never recognised in a text
  bool is_word_of_model = false;  // the model finds it in plain text, too
};

// A part of a text: an added token, or text between (token null).
struct AddedTokenPart {
  const AddedToken* token;
  std::string_view text;
};

// Finds a set of tokens in a text. Holds pointers into the tokens that it was made of.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  AddedTokenFinder(const std::vector<const AddedToken*>& tokens, const Normalizer& normalizer);

  bool empty() const { return nodes_.empty(); }
  // Appends the parts of a text. `special_as_text`: special tokens are text like any other; those that the
  // model would reassemble are cut after their first letter. `special`, unless null, counts them by id.
  void split(std::string_view text, std::vector<AddedTokenPart>& out, bool special_as_text = false,
             SpecialCounts* special = nullptr) const;

 private:
  struct Node {  // of a trie; children are a list, as most nodes have one
    uint8_t byte = 0;
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    const AddedToken* token = nullptr;
  };
  const AddedToken* longest_at(std::string_view text, size_t at, size_t& size) const;
  size_t next_start(std::string_view text, size_t from) const;
  int32_t child(int32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
  std::array<int32_t, 256> roots_{};  // by first byte: node or -1
  int single_start_ = -1;             // the one byte that all tokens start with, else -1
};

}  // namespace strata::data
