// Packs documents into rows of T places so that few are cut and few places stay empty: best-fit decreasing
// (Ding et al., "Fewer Truncations Improve Language Modeling", 2024), in windows of documents so that file
// order is kept roughly and working memory is bounded; the result takes 16 bytes per range.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata::data {

class BestFitPlan {
 public:
  // Tokens [begin, begin + length) of one document; `more`: the document continues after them.
  struct Piece {
    int64_t begin;
    int32_t length;
    bool more;
  };

  // `ends`: the ends of all documents, rising. A document longer than T is cut every T tokens; the remainder
  // is packed with other documents' remainders. A document of one token, which predicts nothing, is left out.
  BestFitPlan(const std::vector<int64_t>& ends, int64_t length);

  int64_t rows() const { return static_cast<int64_t>(row_starts_.size()) - 1; }
  std::span<const Piece> row(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return {pieces_.data() + row_starts_[at], pieces_.data() + row_starts_[at + 1]};
  }
  // The share of places that stay empty.
  double padding() const;

 private:
  void pack_window(std::vector<Piece>& rests, int64_t length);

  std::vector<Piece> pieces_;
  std::vector<size_t> row_starts_;
  int64_t length_;
};

}  // namespace strata::data
