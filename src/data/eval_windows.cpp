#include "data/eval_windows.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace strata::data {

EvalWindows::EvalWindows(TokenCorpus corpus, const EvalOptions& options)
    : corpus_(std::move(corpus)), options_(options), tokens_(corpus_.tokens()) {
  const int64_t length = options_.sequence_length;
  if (length < 1) throw ConfigError("[--sequence-length] is {}; expected at least 1", length);
  if (options_.stride < 0) throw ConfigError("[--stride] is {}; expected at least 1", options_.stride);
  if (options_.stride == 0) options_.stride = length;
  if (options_.max_tokens > 0) tokens_ = std::min(tokens_, options_.max_tokens);
  if (tokens_ < 2) {
    throw DataError("[eval] the text has {} tokens; at least 2 are needed to predict one from another",
                    tokens_);
  }
  // Window w has a target of its own unless the one before it reached the end; and two tokens at least.
  const int64_t by_tokens = (tokens_ - 2) / options_.stride + 1;
  const int64_t by_targets = tokens_ <= length + 1 ? 1 : (tokens_ - length - 2) / options_.stride + 2;
  windows_ = std::min(by_tokens, by_targets);
}

int64_t EvalWindows::fill(int64_t first, int64_t sequences, const Batch& out, BatchScratch& scratch) const {
  const int64_t length = options_.sequence_length;
  scratch.ids.resize(static_cast<size_t>(length) + 1);
  scratch.starts.resize(static_cast<size_t>(length) + 1);
  int64_t counted = 0;
  for (int64_t row = 0; row < sequences; ++row) {
    int32_t* tokens = out.tokens + row * length;
    int32_t* targets = out.targets + row * length;
    int32_t* positions = out.positions + row * length;
    int32_t* kv_begin = out.kv_begin + row * length;
    fill_padding(length, tokens, targets, positions, kv_begin);
    const int64_t window = first + row;
    if (window >= windows_) continue;
    const int64_t begin = window * options_.stride;
    const int64_t count = std::min(length, tokens_ - 1 - begin);  // targets
    corpus_.read(begin, count + 1, scratch.ids.data());
    const bool documents = options_.pack == Pack::kDocuments;
    if (documents) {
      corpus_.mark_document_starts(begin, count + 1, scratch.ids.data(), scratch.starts.data());
    }
    const int64_t seen = window == 0 ? 0 : std::max<int64_t>(0, length - options_.stride);
    counted += fill_row(scratch.ids.data(), documents ? scratch.starts.data() : nullptr, count, seen, tokens,
                        targets, positions, kv_begin);
  }
  return counted;
}

}  // namespace strata::data
