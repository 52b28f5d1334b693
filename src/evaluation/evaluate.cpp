#include "evaluation/evaluate.h"

#include "comm/exchange.h"
#include "program/metrics.h"

namespace strata::evaluation {

bool reports_losses(const program::Executor& executor, size_t index) {
  return program::Metric(executor, index, graph::MetricKind::kLossSum).is_reported();
}

EvalResult evaluate(program::Executor& executor, size_t index, const data::EvalWindows& windows,
                    const std::function<bool(double)>& go_on,
                    const std::function<void(const data::HostBatch&)>& before) {
  const int64_t sequences = executor.program(index).request.sequences;
  const program::Ranks& ranks = executor.ranks();
  const int64_t parts = ranks.batch_parts(), part = ranks.batch_part();
  data::HostBatch rows;
  rows.resize(windows.shape(), sequences);
  data::BatchScratch scratch;
  EvalResult result;
  const program::Metric loss_sum(executor, index, graph::MetricKind::kLossSum);
  const program::Metric token_count(executor, index, graph::MetricKind::kTokenCount);
  const program::Script& script = executor.program(index).script;
  for (int64_t first = 0; first < windows.windows();) {
    // Rows after the last window have no targets.
    windows.fill(first + part * sequences, sequences, rows.view(), scratch);
    executor.upload_rows(index, rows.rows(windows.shape()), 0, 0);
    if (before) before(rows);
    for (size_t i = 0; i < script.size(); ++i) executor.run_in_script(index, i, false, first > 0);
    first += parts * sequences;
    result.loss_sum = loss_sum.read<double>();
    result.tokens = token_count.read<int64_t>();
    const double done = static_cast<double>(first) / static_cast<double>(windows.windows());
    if (first < windows.windows() && go_on && !go_on(done)) break;
  }
  executor.finish_messages();
  const bool counts = loss_sum.is_reported();
  std::vector<double> sums{counts ? result.loss_sum : 0, counts ? static_cast<double>(result.tokens) : 0};
  comm::sum_over(ranks.all(), sums);
  return {sums[0], static_cast<int64_t>(sums[1])};
}

}  // namespace strata::evaluation
