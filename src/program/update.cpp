#include "program/update.h"

#include <fmt/core.h>

namespace strata::program {

void write_hyper(const Executor& executor, const optim::UpdateHyper& hyper) {
  executor.write("hyper", hyper);
}

void write_terms(const Executor& executor, std::span<const int64_t> terms) {
  // In a pipeline the last stage has them.
  if (executor.program(0).graph.find_value("loss_terms") == graph::kNone) return;
  for (size_t i = 0; i < terms.size(); ++i)
    executor.write(i == 0 ? "loss_terms" : fmt::format("predict.{}.terms", i), terms[i]);
}

int64_t updates_made(const Executor& executor) {
  return executor.read<int64_t>("updates");
}

void set_updates_made(const Executor& executor, int64_t updates) {
  executor.write("updates", updates);
}

}  // namespace strata::program
