#include "program/update.h"

#include <algorithm>

namespace strata::program {

void write_hyper(const Executor& executor, const optim::UpdateHyper& hyper) {
  executor.write("hyper", hyper);
}

int64_t updates_made(const Executor& executor) {
  return executor.read<int64_t>("updates");
}

void set_updates_made(const Executor& executor, int64_t updates) {
  executor.write("updates", updates);
}

void clear_states(const Executor& executor) {
  const std::vector<std::byte> zeros(1 << 20);
  const auto most = std::ssize(zeros);
  for (const Persistent& entry : executor.set().persistent) {
    if (entry.role != graph::Role::kState) continue;
    for (int64_t at = 0; at < entry.bytes; at += most)
      executor.upload(entry.name, zeros.data(), std::min<int64_t>(most, entry.bytes - at), at);
  }
}

}  // namespace strata::program
