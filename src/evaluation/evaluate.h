// Computes the mean loss over windows of tokens.
#pragma once

#include <functional>
#include <vector>

#include "data/samples/eval_windows.h"
#include "data/samples/loader.h"
#include "program/executor.h"

namespace strata::evaluation {

struct EvalResult {
  double loss_sum = 0;
  int64_t tokens = 0;
  double loss() const { return tokens > 0 ? loss_sum / static_cast<double>(tokens) : 0; }
};

// Whether this rank reports its losses: of ranks with identical results only the first one does.
bool reports_losses(const program::Executor& executor, size_t index);

// Runs program `index` (Kind::kEvaluate) over all windows, one batch of sequences at a time. `go_on` is
// called between batches with the fraction done; if it returns false, the evaluation stops and returns its
// result so far. All ranks of the executor must call it: each evaluates its share of the windows, and all get
// the whole result; `go_on` must return the same on all of them. `before` is called with the rows of each
// batch before it runs.
EvalResult evaluate(program::Executor& executor, size_t index, const data::EvalWindows& windows,
                    const std::function<bool(double done)>& go_on = {},
                    const std::function<void(const data::HostBatch&)>& before = {});

}  // namespace strata::evaluation
