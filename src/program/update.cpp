#include "program/update.h"

namespace strata::program {

void write_hyper(const Executor& executor, const optim::UpdateHyper& hyper) {
  executor.write("hyper", hyper);
}

void write_terms(const Executor& executor, std::span<const int64_t> terms) {
  // In a pipeline the last stage has them.
  const graph::Graph& graph = executor.program(0).graph;
  for (const graph::Metric& metric : graph.metrics()) {
    if (metric.kind == graph::MetricKind::kLossTerms)
      executor.write(graph.value(metric.value).name, terms[static_cast<size_t>(metric.index)]);
  }
}

int64_t updates_made(const Executor& executor) {
  return executor.read<int64_t>("updates");
}

void set_updates_made(const Executor& executor, int64_t updates) {
  executor.write("updates", updates);
}

}  // namespace strata::program
