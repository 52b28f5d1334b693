// The windows of an evaluation: window w holds tokens [w*stride, w*stride + N], the last one the remainder
// (at least 2 tokens), and each target counts once, in the first window that holds it. Windows without a
// target that is new are left out. Rows are padded to N with targets of -1, so that every batch has one
// shape. Objectives other than the causal one take consecutive windows of a different shape (RowShape); which
// tokens they hide depends only on the window's number, so that the losses of several runs compare.
#pragma once

#include <cstdint>

#include "data/samples/sample_source.h"

namespace strata::data {

struct EvalOptions {
  int64_t sequence_length = 0;  // N; of the source where the objective has one
  int64_t stride = 0;           // 0: N; other values only with the causal objective
  Pack pack = Pack::kStream;    // attention and targets across documents, as in a plain stream
  int64_t max_tokens = 0;       // of the corpus, from its start; 0: all
  ObjectiveOptions objective{};
};

class EvalWindows {
 public:
  // DataError for a corpus too short for a window: of fewer than 2 tokens. ConfigError as SampleSource.
  EvalWindows(TokenCorpus corpus, const EvalOptions& options);

  int64_t windows() const { return windows_; }
  const RowShape& shape() const { return shape_; }

  // Windows [first, first + sequences); those past the end are padding. Returns the number of targets that
  // count. Any thread may call this.
  int64_t fill(int64_t first, int64_t sequences, const Batch& out, BatchScratch& scratch) const;

 private:
  TokenCorpus corpus_;
  EvalOptions options_;
  RowShape shape_{};
  int64_t tokens_ = 0;
  int64_t windows_ = 0;
};

}  // namespace strata::data
