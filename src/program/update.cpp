#include "program/update.h"

namespace strata::program {

using graph::MetricKind;

void write_hyper(const Executor& executor, const optim::UpdateHyper& hyper) {
  executor.upload(0, executor.program(0).graph.metric(MetricKind::kHyper), &hyper, sizeof hyper);
}

void write_terms(const Executor& executor, std::span<const int64_t> terms) {
  // In a pipeline the last stage has them.
  for (const graph::Metric& metric : executor.program(0).graph.metrics()) {
    if (metric.kind == MetricKind::kLossTerms)
      executor.upload(0, metric.value, &terms[static_cast<size_t>(metric.index)], sizeof(int64_t));
  }
}

optim::GuardHistory guard_history(const Executor& executor) {
  optim::GuardHistory history;
  executor.download(0, executor.program(0).graph.metric(MetricKind::kGuardHistory), &history, sizeof history);
  return history;
}

void set_guard_history(const Executor& executor, const optim::GuardHistory& history) {
  executor.upload(0, executor.program(0).graph.metric(MetricKind::kGuardHistory), &history, sizeof history);
  if (scales_loss(executor)) {
    executor.upload(0, executor.program(0).graph.metric(MetricKind::kLossScale), &history.loss_scale.scale,
                    sizeof history.loss_scale.scale);
  }
}

bool scales_loss(const Executor& executor) {
  return executor.program(0).graph.metric(MetricKind::kLossScale) != graph::kNone;
}

void start_loss_scale(const Executor& executor, std::optional<float> fixed) {
  if (!scales_loss(executor)) return;
  optim::GuardHistory history = guard_history(executor);
  optim::LossScale& scale = history.loss_scale;
  if (fixed) {
    scale = optim::fixed_loss_scale(*fixed);
  } else if (scale.is_adaptive == 0) {
    scale = optim::first_loss_scale();
  }
  set_guard_history(executor, history);
}

optim::GuardDecision decision_of(const Executor& executor) {
  optim::GuardDecision decision;
  executor.download(0, executor.program(0).graph.metric(MetricKind::kDecision), &decision, sizeof decision);
  return decision;
}

int64_t updates_made(const Executor& executor) {
  int64_t updates = 0;
  executor.download(0, executor.program(0).graph.metric(MetricKind::kUpdates), &updates, sizeof updates);
  return updates;
}

void set_updates_made(const Executor& executor, int64_t updates) {
  executor.upload(0, executor.program(0).graph.metric(MetricKind::kUpdates), &updates, sizeof updates);
}

}  // namespace strata::program
