#include "data/samples/eval_windows.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace strata::data {

EvalWindows::EvalWindows(TokenCorpus corpus, const EvalOptions& options)
    : corpus_(std::move(corpus)), options_(options), tokens_(corpus_.tokens()) {
  const int64_t length = options_.sequence_length;
  if (length < 1) throw ConfigError("[--sequence-length] is {}; expected at least 1", length);
  if (options_.stride < 0) throw ConfigError("[--stride] is {}; expected at least 1", options_.stride);
  const bool causal = options_.objective.kind == Objective::kCausal;
  if (!causal && options_.stride != 0 && options_.stride != length) {
    throw ConfigError(
        "[--stride] is {}: windows overlap only with the causal objective. Leave it "
        "out",
        options_.stride);
  }
  if (options_.objective.kind == Objective::kSpanCorruption && options_.pack != Pack::kStream) {
    throw ConfigError("[data.pack] span corruption takes windows of the plain stream; set \"stream\"");
  }
  check_objective(options_.objective, length);
  shape_ = row_shape(options_.objective, length);
  if (options_.stride == 0 || !causal) options_.stride = shape_.window;
  if (options_.max_tokens > 0) tokens_ = std::min(tokens_, options_.max_tokens);
  if (tokens_ < 2) {
    throw DataError("[eval] the text has {} tokens; at least 2 are needed to predict one from another",
                    tokens_);
  }
  if (!causal) {
    // A single last token predicts nothing.
    windows_ = tokens_ / shape_.window + (tokens_ % shape_.window > 1 ? 1 : 0);
    return;
  }
  // Window w has a target that no other window has unless the previous window reached the end; and at least
  // two tokens.
  const int64_t by_tokens = (tokens_ - 2) / options_.stride + 1;
  const int64_t by_targets = tokens_ <= length + 1 ? 1 : (tokens_ - length - 2) / options_.stride + 2;
  windows_ = std::min(by_tokens, by_targets);
}

int64_t EvalWindows::fill(int64_t first, int64_t sequences, const Batch& out, BatchScratch& scratch) const {
  constexpr uint64_t kSeed = 0;
  const int64_t capacity = shape_.window + shape_.look_ahead;
  scratch.ids.resize(static_cast<size_t>(capacity));
  scratch.starts.resize(static_cast<size_t>(capacity));
  int64_t counted = 0;
  for (int64_t i = 0; i < sequences; ++i) {
    const Batch row = row_of(out, shape_, i);
    const int64_t window = first + i;
    if (window >= windows_) {
      fill_padding(shape_, 0, 0, row);
      continue;
    }
    const int64_t begin = window * options_.stride;
    const int64_t n = std::min(capacity, tokens_ - begin);
    corpus_.read(begin, n, scratch.ids.data());
    const bool documents = options_.pack == Pack::kDocuments;
    if (documents) corpus_.mark_document_starts(begin, n, scratch.ids.data(), scratch.starts.data());
    const int64_t seen = window == 0 ? 0 : std::max<int64_t>(0, shape_.window - options_.stride);
    RowDraws draws(kSeed, window);
    counted +=
        fill_objective(options_.objective, shape_, scratch.ids.data(),
                       documents ? scratch.starts.data() : nullptr, n, seen, draws, scratch.lengths, row);
  }
  return counted;
}

}  // namespace strata::data
