// The rest of an epoch whose rows were cut differently from the current ones: its places, in their original
// order, cut into current rows. A row may hold ranges of several old rows; ranges that are consecutive in the
// text become one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/random.h"
#include "data/samples/best_fit.h"
#include "data/samples/position.h"
#include "data/tokens/token_corpus.h"

namespace strata::data {

class EpochRest {
 public:
  // `at` is in the epoch of `corpus`; rows take `window` places, the last one the remainder.
  EpochRest(const TokenCorpus& corpus, const SourcePosition& at, int64_t window);

  int64_t rows() const;
  // Places of the old rows before row `row`.
  int64_t offset(int64_t row) const { return offset_ + row * window_; }
  int64_t epoch_places() const { return places_; }
  // The text ranges of a row, in order; `out` is reused.
  void row(int64_t row, std::vector<BestFitPlan::Piece>& out) const;

 private:
  void append_old_row(int64_t old_row, int64_t begin, int64_t end,
                      std::vector<BestFitPlan::Piece>& out) const;

  EpochLayout layout_;
  int64_t offset_;
  int64_t window_;
  int64_t tokens_;
  int64_t places_ = 0;                // of the whole epoch
  std::optional<Permutation> order_;  // of the old rows; none: in file order
  std::optional<BestFitPlan> plan_;
};

}  // namespace strata::data
