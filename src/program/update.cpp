#include "program/update.h"

#include <cstring>

namespace strata::program {

void write_hyper(const Executor& executor, const optim::UpdateHyper& hyper) {
  std::memcpy(executor.data("hyper"), &hyper, sizeof hyper);
}

int64_t updates_made(const Executor& executor) {
  return *executor.data_as<int64_t>("updates");
}

void set_updates_made(const Executor& executor, int64_t updates) {
  *executor.data_as<int64_t>("updates") = updates;
}

void clear_states(const Executor& executor) {
  for (const Persistent& entry : executor.set().persistent) {
    if (entry.role == graph::Role::kState)
      std::memset(executor.data(entry.name), 0, static_cast<size_t>(entry.bytes));
  }
}

}  // namespace strata::program
