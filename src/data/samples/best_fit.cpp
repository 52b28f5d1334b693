#include "data/samples/best_fit.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace strata::data {
namespace {

constexpr size_t kWindowPieces = 1 << 16;

}  // namespace

BestFitPlan::BestFitPlan(const std::vector<int64_t>& ends, int64_t length) : row_starts_{0}, length_(length) {
  STRATA_CHECK(length >= 1 && length <= INT32_MAX, "rows of {} places", length);
  std::vector<Piece> rests;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    for (; end - begin > length; begin += length) {
      pieces_.push_back({begin, static_cast<int32_t>(length), true});
      row_starts_.push_back(pieces_.size());
    }
    // A single token has nothing to predict.
    if (end - begin > 1) rests.push_back({begin, static_cast<int32_t>(end - begin), false});
    begin = end;
    if (rests.size() == kWindowPieces) pack_window(rests, length);
  }
  pack_window(rests, length);
}

void BestFitPlan::pack_window(std::vector<Piece>& rests, int64_t length) {
  std::stable_sort(rests.begin(), rests.end(),
                   [](const Piece& a, const Piece& b) { return a.length > b.length; });
  std::vector<std::vector<Piece>> rows;
  std::set<std::pair<int64_t, size_t>> open;  // places left, row
  for (const Piece& piece : rests) {
    auto tightest = open.lower_bound({piece.length, 0});
    size_t row = rows.size();
    int64_t left = length;
    if (tightest == open.end()) {
      rows.emplace_back();
    } else {
      std::tie(left, row) = *tightest;
      open.erase(tightest);
    }
    rows[row].push_back(piece);
    left -= piece.length;
    if (left > 1) open.insert({left, row});
  }
  for (const auto& row : rows) {
    pieces_.insert(pieces_.end(), row.begin(), row.end());
    row_starts_.push_back(pieces_.size());
  }
  rests.clear();
}

double BestFitPlan::padding() const {
  int64_t used = 0;
  for (const Piece& piece : pieces_) used += piece.length;
  const auto places = static_cast<double>(rows() * length_);
  return places > 0 ? 1.0 - static_cast<double>(used) / places : 0.0;
}

}  // namespace strata::data
