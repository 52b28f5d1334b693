#include "evaluation/evaluate.h"

#include <algorithm>

#include "base/error.h"
#include "comm/exchange.h"
#include "data/samples/rows.h"
#include "graph/shard.h"
#include "program/metrics.h"

namespace strata::evaluation {

namespace {

// Of the whole rows of a field what this rank has of each, in the order in which it lies there.
std::vector<int32_t> held_places(const std::vector<int32_t>& rows, int64_t length,
                                 const program::Ranks& ranks) {
  const graph::Cut cut{{std::ssize(rows)}, ranks.mesh().size(graph::Axis::kContext), 0, length};
  std::vector<int32_t> held;
  for (const graph::HeldSpan& span : graph::held_of(cut, ranks.coordinates()[graph::Axis::kContext])) {
    const int32_t* const from = rows.data() + span.whole.begin;
    held.insert(held.end(), from, from + span.whole.size());
  }
  return held;
}

// Where ranks share the rows, or fill them up: of each field what this one reads. The program's rows may be
// longer than the batch's: they end in padding.
void copy_shares(const data::HostBatch& batch, const data::RowShape& shape, int64_t first,
                 program::Executor& executor, size_t index, int64_t micro_batch) {
  const program::Program& program = executor.program(index);
  const program::Request& request = program.request;
  const data::RowShape room{.window = shape.window,
                            .look_ahead = shape.look_ahead,
                            .tokens = request.sequence_length,
                            .encoder_length = request.encoder_length};
  data::HostBatch rows;
  rows.resize(room, request.sequences);
  for (const data::BatchField& field : data::batch_fields()) {
    const int64_t places = field.places_of(shape), all = field.places_of(room);
    for (int64_t row = 0; row < request.sequences; ++row)
      std::copy_n((batch.*field.host).data() + (first + row) * places, places,
                  (rows.*field.host).data() + row * all);
  }
  for (int64_t row = 0; row < request.sequences; ++row)
    data::fill_padding(room, shape.tokens, shape.encoder_length, data::row_of(rows.view(), room, row));
  for (const data::BatchField& field : data::batch_fields()) {
    const graph::ValueId input = program.graph.find_value(field.name);
    if (input == graph::kNone) continue;
    const std::vector<int32_t>& whole = rows.*field.host;
    const bool shared =
        program.graph.placement(input, graph::Axis::kContext) != graph::Placement::replicated();
    executor.write_batch(index, std::string(field.name), micro_batch,
                         shared ? held_places(whole, field.places_of(room), executor.ranks()) : whole);
  }
}

// Whether the ranks of the context axis share the rows of the program's batch.
bool shares_rows(const program::Executor& executor, size_t index) {
  if (executor.ranks().mesh().size(graph::Axis::kContext) == 1) return false;
  const graph::Graph& graph = executor.program(index).graph;
  const graph::ValueId tokens = graph.find_value("tokens");
  return tokens != graph::kNone &&
         graph.placement(tokens, graph::Axis::kContext) != graph::Placement::replicated();
}

}  // namespace

void copy_rows(const data::HostBatch& batch, const data::RowShape& shape, int64_t first,
               program::Executor& executor, size_t index, int64_t micro_batch) {
  const bool is_longer = executor.program(index).request.sequence_length > shape.tokens;
  if (is_longer || shares_rows(executor, index))
    return copy_shares(batch, shape, first, executor, index, micro_batch);
  const int64_t rows = executor.program(index).request.sequences;
  for (const data::BatchField& field : data::batch_fields()) {
    const int64_t places = field.places_of(shape);
    executor.upload_batch(index, std::string(field.name), micro_batch,
                          (batch.*field.host).data() + first * places,
                          rows * places * static_cast<int64_t>(sizeof(int32_t)));
  }
}

bool gives_losses(const program::Executor& executor, size_t index) {
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
    // Behind the last window there are rows without targets.
    windows.fill(first + part * sequences, sequences, rows.view(), scratch);
    copy_rows(rows, windows.shape(), 0, executor, index, 0);
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
