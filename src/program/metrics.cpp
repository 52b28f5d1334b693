#include "program/metrics.h"

#include "base/error.h"

namespace strata::program {

Metric::Metric(const Executor& executor, size_t program, graph::MetricKind kind, int32_t index)
    : executor_(&executor), program_(program), value_(executor.program(program).graph.metric(kind, index)) {
  if (is_here())
    reports_ = executor.ranks().is_first_holder(executor.program(program).graph.value(value_).placements);
}

int64_t Metric::first_holder() const {
  STRATA_CHECK(is_here(), "the program does not have this metric");
  const Ranks& ranks = executor_->ranks();
  return ranks.first_holder(executor_->program(program_).graph.value(value_).placements);
}

int64_t Metric::bytes() const {
  STRATA_CHECK(is_here(), "the program does not have this metric");
  return executor_->program(program_).graph.value(value_).bytes();
}

void Metric::download(void* to, int64_t bytes) const {
  STRATA_CHECK(is_here(), "the program does not have this metric");
  executor_->download(program_, value_, to, bytes);
}

}  // namespace strata::program
