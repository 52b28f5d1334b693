// Mean loss over windows of tokens.
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

// Whether this rank tells the losses that it has: of ranks that compute the same the first does.
bool gives_losses(const program::Executor& executor, size_t index);

// Runs program `index` (Kind::kEvaluate) over all windows, a batch of its sequences at a time. `go_on` is
// asked between batches, with the share that is done; a stopped evaluation returns what it has. All ranks of
// the executor call it: each takes its share of the windows, and all get the whole result; `go_on` must say
// the same on all of them. `before` is told of the rows of each batch before it runs.
EvalResult evaluate(program::Executor& executor, size_t index, const data::EvalWindows& windows,
                    const std::function<bool(double done)>& go_on = {},
                    const std::function<void(const data::HostBatch&)>& before = {});

}  // namespace strata::evaluation
