// From tokens back to text: the decoder of a tokenizer.json.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/tokenizer/split.h"

namespace strata::data {

struct ByteLevelDecoder {};     // characters of the byte alphabet → bytes
struct ByteFallbackDecoder {};  // tokens <0xHH> → bytes
struct FuseDecoder {};          // all tokens become one
struct ReplaceDecoder {
  Pattern pattern;
  std::string content;
};
struct StripDecoder {  // up to `start` leading and `stop` trailing copies of `content` of each token
  std::string content;
  size_t start = 0;
  size_t stop = 0;
};
struct SuffixDecoder {  // "BPEDecoder": a word's end mark becomes a space, or nothing at the end of the text
  std::string suffix;
};
struct WordPieceDecoder {  // a space before each token but the first and those with the prefix, which loses
                           // it
  std::string prefix;
  bool cleanup = true;  // no space before punctuation and English contractions
};
struct MetaspaceDecoder {  // the replacement becomes a space; in the first token it is removed if it was
                           // added there
  std::string replacement;
  bool drop_first = true;
};
using DecoderStep = std::variant<ByteLevelDecoder, ByteFallbackDecoder, FuseDecoder, ReplaceDecoder,
                                 StripDecoder, SuffixDecoder, WordPieceDecoder, MetaspaceDecoder>;

class Decoder {
 public:
  Decoder() = default;  // no decoder: tokens joined by spaces
  explicit Decoder(std::vector<DecoderStep> steps) : steps_(std::move(steps)), present_(true) {}

  // True if a text is just the concatenated bytes of its tokens: only byte-level.
  bool is_plain_byte_level() const {
    return steps_.size() == 1 && std::holds_alternative<ByteLevelDecoder>(steps_[0]);
  }

  // The text of the tokens. With `keep_bytes` byte sequences that are not UTF-8 are unchanged, else they
  // become U+FFFD as in the Hugging Face library.
  std::string decode(std::vector<std::string> tokens, bool keep_bytes) const;

 private:
  std::vector<DecoderStep> steps_;
  bool present_ = false;
};

// What a token stands for in the byte alphabet; a token with other characters stands for its own text.
std::string byte_level_bytes(std::string_view token);

}  // namespace strata::data
