// From text to pieces that no token crosses: the pre_tokenizer of a tokenizer.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/tokenizer/split.h"

namespace strata::data {

struct SplitStep {
  Pattern pattern;
  SplitBehaviour behaviour = SplitBehaviour::kIsolated;
  bool invert = false;
};

struct ByteLevelStep {
  bool add_prefix_space = true;
  bool use_regex = true;
};

// Spaces become `replacement`, which each piece begins with.
struct MetaspaceStep {
  enum Prepend { kNever, kFirst, kAlways };
  std::string replacement;
  Prepend prepend = kAlways;  // added before a piece that has none; kFirst: only at the text's begin
  bool split = true;
};

using PreTokenizerStep = std::variant<SplitStep, ByteLevelStep, MetaspaceStep>;

// Reused between calls, so that splitting allocates nothing once it is warm.
struct PieceBuffer {
  std::string_view text;  // the text that the pieces index: the input, or `storage`
  std::vector<Piece> pieces;
  std::string storage;
  std::string next_storage;
  std::vector<Piece> next_pieces;
  std::vector<Match> matches;
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps);  // at most one ByteLevel step, else DataError

  // True when pieces are bytes in the byte-level alphabet (there is a ByteLevel step).
  bool byte_level() const { return byte_level_; }

  // The only pattern of this pre-tokenizer, if a scanner knows it: then scan_pieces finds the pieces by
  // itself, without a buffer.
  std::optional<KnownPattern> single_scanner() const { return scanner_; }

  // Splits `text` into pieces, which index raw bytes: characters that steps after ByteLevel see are mapped
  // back. at_begin: `text` is the beginning of the whole text.
  void split(std::string_view text, bool at_begin, PieceBuffer& out) const;

 private:
  std::vector<PreTokenizerStep> steps_;
  bool byte_level_ = false;
  std::optional<KnownPattern> scanner_;
};

}  // namespace strata::data
