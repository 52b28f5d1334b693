#include "evaluation/evaluate.h"

#include "base/error.h"
#include "comm/exchange.h"

namespace strata::evaluation {

void copy_rows(const data::HostBatch& batch, const data::RowShape& shape, int64_t first,
               program::Executor& executor, size_t index, int64_t micro_batch) {
  const int64_t rows = executor.program(index).request.sequences;
  for (const data::BatchField& field : data::batch_fields()) {
    const int64_t places = field.places_of(shape);
    executor.upload_batch(index, std::string(field.name), micro_batch,
                          (batch.*field.host).data() + first * places,
                          rows * places * static_cast<int64_t>(sizeof(int32_t)));
  }
}

bool gives_losses(const program::Executor& executor, size_t index) {
  const graph::Graph& graph = executor.program(index).graph;
  return executor.ranks() == nullptr ||
         executor.ranks()->is_first_holder(graph.value(graph.find_value("loss_sum")).placements);
}

EvalResult evaluate(program::Executor& executor, size_t index, const data::EvalWindows& windows,
                    const std::function<bool(double)>& go_on) {
  const int64_t sequences = executor.program(index).request.sequences;
  const program::Ranks* const ranks = executor.ranks();
  const int64_t parts = ranks != nullptr ? ranks->batch_parts() : 1;
  const int64_t part = ranks != nullptr ? ranks->batch_part() : 0;
  data::HostBatch rows;
  rows.resize(windows.shape(), sequences);
  data::BatchScratch scratch;
  EvalResult result;
  const program::Script& script = executor.program(index).script;
  for (int64_t first = 0; first < windows.windows();) {
    // Behind the last window there are rows without targets.
    windows.fill(first + part * sequences, sequences, rows.view(), scratch);
    copy_rows(rows, windows.shape(), 0, executor, index, 0);
    for (size_t i = 0; i < script.size(); ++i) executor.run_in_script(index, i, false, first > 0);
    first += parts * sequences;
    result.loss_sum = executor.read<double>("loss_sum");
    result.tokens = executor.read<int64_t>("token_count");
    const double done = static_cast<double>(first) / static_cast<double>(windows.windows());
    if (first < windows.windows() && go_on && !go_on(done)) break;
  }
  executor.finish_messages();
  if (ranks != nullptr) {
    if (!gives_losses(executor, index)) result = {};
    result.loss_sum = comm::sum_over(ranks->all(), result.loss_sum);
    result.tokens = static_cast<int64_t>(comm::sum_over(ranks->all(), static_cast<double>(result.tokens)));
  }
  return result;
}

}  // namespace strata::evaluation
