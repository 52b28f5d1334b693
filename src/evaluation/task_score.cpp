#include "evaluation/task_score.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/error.h"
#include "comm/exchange.h"
#include "data/text/characters.h"
#include "evaluation/evaluate.h"
#include "program/metrics.h"

namespace strata::evaluation {
namespace {

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// The standard error of the mean, from the sample's deviation.
std::optional<double> error_of_mean(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  const double mean = mean_of(values), n = static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (n - 1)) / std::sqrt(n);
}

int64_t first_greatest(std::span<const double> values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

}  // namespace

program::Request task_program(int64_t row_length, int64_t rows) {
  return {.kind = program::Kind::kEvaluate,
          .sequences = std::clamp<int64_t>(2048 / row_length, 1, std::max<int64_t>(1, rows)),
          .sequence_length = row_length,
          .document_mask = true,
          .per_token_loss = true};
}

namespace {

// Shares the scores: each was computed by one rank, the others have zeros.
void share(const program::Ranks& ranks, std::vector<RequestScore>& scores) {
  std::vector<double> values;
  for (const RequestScore& score : scores) {
    values.push_back(score.log_likelihood);
    values.push_back(score.greedy ? 1 : 0);
  }
  comm::sum_over(ranks.all(), values);
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = {values[2 * i], values[2 * i + 1] != 0};
}

}  // namespace

std::vector<RequestScore> score_requests(program::Executor& executor, size_t index,
                                         const std::vector<TaskRequest>& requests,
                                         const PackedRequests& packed,
                                         const std::function<bool(double)>& done) {
  const program::Request& shape = executor.program(index).request;
  STRATA_CHECK(shape.per_token_loss && shape.document_mask && shape.sequence_length == packed.row_length(),
               "the program was not compiled for these requests");
  const data::RowShape row_shape{
      .window = shape.sequence_length, .look_ahead = 1, .tokens = shape.sequence_length, .encoder_length = 0};
  data::HostBatch rows;
  rows.resize(row_shape, shape.sequences);
  std::vector<float> loss(static_cast<size_t>(shape.sequences * shape.sequence_length));
  std::vector<int32_t> greedy(loss.size());
  std::vector<RequestScore> scores(requests.size());
  const int64_t length = shape.sequence_length;
  // The pipeline stage with the head, and the first of ranks with identical results.
  const program::Metric token_loss(executor, index, graph::MetricKind::kTokenLoss);
  const program::Metric token_greedy(executor, index, graph::MetricKind::kTokenGreedy);
  const bool reports = reports_losses(executor, index) && token_loss.is_here();
  const program::Ranks& ranks = executor.ranks();
  const int64_t parts = ranks.batch_parts(), part = ranks.batch_part();
  for (int64_t begin_of_all = 0; begin_of_all < packed.rows(); begin_of_all += parts * shape.sequences) {
    const int64_t first = std::min(packed.rows(), begin_of_all + part * shape.sequences);
    packed.fill(first, shape.sequences, rows.view());
    executor.upload_rows(index, rows.rows(row_shape), 0, 0);
    executor.run_script(index);
    if (reports) {
      token_loss.read_into(std::span(loss));
      token_greedy.read_into(std::span(greedy));
    }
    const int64_t last = std::min(packed.rows(), first + shape.sequences);
    for (int64_t row = first; reports && row < last; ++row) {
      packed.for_each(row, [&](size_t request, int64_t place) {
        RequestScore score{0, true};
        const auto begin = static_cast<size_t>((row - first) * length + place);
        for (size_t i = begin; i < begin + static_cast<size_t>(requests[request].scored); ++i) {
          score.log_likelihood -= static_cast<double>(loss[i]);
          score.greedy = score.greedy && greedy[i] != 0;
        }
        scores[request] = score;
      });
    }
    const int64_t through = std::min(packed.rows(), begin_of_all + parts * shape.sequences);
    if (done && !done(static_cast<double>(through) / static_cast<double>(packed.rows()))) return {};
  }
  executor.finish_messages();
  share(ranks, scores);
  return scores;
}

TaskScore sum_up(const Task& task, const std::vector<RequestScore>& scores) {
  TaskScore out;
  std::vector<double> right, right_norm, likelihoods;
  size_t at = 0;
  for (const TaskItem& item : task.items) {
    ItemScore score;
    if (task.kind == TaskKind::kLastWord) {
      score.acc = scores[at].greedy;
      likelihoods.push_back(scores[at].log_likelihood);
      ++at;
    } else {
      std::vector<double> plain, normed;
      for (const std::string& choice : item.choices) {
        plain.push_back(scores[at++].log_likelihood);
        normed.push_back(plain.back() / static_cast<double>(data::count_code_points(choice)));
      }
      score.predicted = first_greatest(plain);
      score.predicted_norm = first_greatest(normed);
      score.acc = score.predicted == item.gold;
      score.acc_norm = score.predicted_norm == item.gold;
      right_norm.push_back(score.acc_norm ? 1 : 0);
    }
    right.push_back(score.acc ? 1 : 0);
    out.items.push_back(score);
  }
  out.metrics.push_back({"acc", mean_of(right), error_of_mean(right)});
  if (task.kind == TaskKind::kMultipleChoice) {
    out.metrics.push_back({"acc_norm", mean_of(right_norm), error_of_mean(right_norm)});
  } else {
    const double perplexity = std::exp(-mean_of(likelihoods));
    const auto error = error_of_mean(likelihoods);
    out.metrics.push_back(
        {"perplexity", perplexity, error ? std::optional(perplexity * *error) : std::nullopt});
  }
  return out;
}

}  // namespace strata::evaluation
