// Ids back to text as the SentencePiece library does it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace strata::data {

class SentencePieceDecoder {
 public:
  struct Piece {
    enum Kind { kText, kByte, kControl, kUnknown } kind = kText;
    std::string text;  // of a byte: that byte; of the unknown token: its replacement
  };
  // drop_first_space: the space before a text was added. drop_leading_spaces: all of them are removed.
  SentencePieceDecoder(std::vector<Piece> pieces, bool drop_first_space, bool drop_leading_spaces)
      : pieces_(std::move(pieces)),
        drop_first_space_(drop_first_space),
        drop_leading_spaces_(drop_leading_spaces) {}

  // Ids without a piece give nothing. Bytes that are not UTF-8 stay with keep_bytes, else each is U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool keep_bytes) const;

 private:
  std::vector<Piece> pieces_;
  bool drop_first_space_;
  bool drop_leading_spaces_;
};

}  // namespace strata::data
