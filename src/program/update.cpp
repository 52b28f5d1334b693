#include "program/update.h"

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

}  // namespace strata::program
