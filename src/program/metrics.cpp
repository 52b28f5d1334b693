#include "program/metrics.h"

#include "base/error.h"

namespace strata::program {

Metric::Metric(const Executor& executor, size_t program, graph::MetricKind kind, int32_t index)
    : executor_(&executor) {
  const graph::Graph& graph = executor.program(program).graph;
  const graph::ValueId id = graph.metric(kind, index);
  if (id == graph::kNone) return;
  const graph::Value& value = graph.value(id);
  at_ = &executor.set().at(value.name);
  reports_ = executor.ranks().is_first_holder(value.placements);
}

int64_t Metric::bytes() const {
  STRATA_CHECK(is_here(), "the program does not have this metric");
  return at_->bytes;
}

void Metric::download(void* to, int64_t bytes) const {
  STRATA_CHECK(is_here(), "the program does not have this metric");
  executor_->download(*at_, to, bytes);
}

}  // namespace strata::program
