#include "data/samples/epoch_rest.h"

#include <algorithm>

namespace strata::data {

EpochRest::EpochRest(const TokenCorpus& corpus, const SourcePosition& at, int64_t window)
    : layout_(at.layout), offset_(at.offset), window_(window), tokens_(corpus.tokens()) {
  int64_t old_rows = (tokens_ - layout_.look_ahead) / layout_.window;
  if (layout_.packed) {
    plan_.emplace(corpus.document_ends(), layout_.window);
    old_rows = plan_->rows();
  }
  if (old_rows > 0 && layout_.shuffle)
    order_.emplace(static_cast<uint64_t>(old_rows), layout_.seed, static_cast<uint64_t>(at.epoch));
  places_ = old_rows * layout_.window;
}

int64_t EpochRest::rows() const {
  // A single place is not a text for objectives that read nothing after a row.
  const int64_t left = places_ - offset_ - (layout_.look_ahead > 0 ? 0 : 1);
  return left > 0 ? (left + window_ - 1) / window_ : 0;
}

void EpochRest::row(int64_t row, std::vector<BestFitPlan::Piece>& out) const {
  out.clear();
  const int64_t end = std::min(offset(row + 1), places_);
  for (int64_t at = offset(row); at < end;) {
    const int64_t old_row = at / layout_.window, begin = at % layout_.window;
    const int64_t stop = std::min(layout_.window, begin + end - at);
    append_old_row(order_ ? static_cast<int64_t>((*order_)(static_cast<uint64_t>(old_row))) : old_row, begin,
                   stop, out);
    at += stop - begin;
  }
}

void EpochRest::append_old_row(int64_t old_row, int64_t begin, int64_t end,
                               std::vector<BestFitPlan::Piece>& out) const {
  const auto append = [&out](int64_t at, int64_t length, bool more) {
    if (!out.empty() && out.back().more && out.back().begin + out.back().length == at) {
      out.back().length += static_cast<int32_t>(length);
      out.back().more = more;
    } else {
      out.push_back({at, static_cast<int32_t>(length), more});
    }
  };
  if (!plan_) {
    const int64_t first = old_row * layout_.window;
    append(first + begin, end - begin, first + end < tokens_);
    return;
  }
  int64_t place = 0;
  for (const BestFitPlan::Piece& piece : plan_->row(old_row)) {
    const int64_t first = std::max(begin, place), last = std::min<int64_t>(end, place + piece.length);
    if (first < last) {
      const bool whole = last == place + piece.length;
      append(piece.begin + first - place, last - first, whole ? piece.more : true);
    }
    place += piece.length;
  }
}

}  // namespace strata::data
