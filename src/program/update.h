// What the host says to a training program and hears of its optimizers: the constants and the learning rate
// of a step before its first micro-batch, and how many updates were made.
#pragma once

#include "optim/optimizer.h"
#include "program/executor.h"

namespace strata::program {

void write_hyper(const Executor& executor, const optim::UpdateHyper& hyper);

// Device state, which instructions count on; a skipped step makes no update.
int64_t updates_made(const Executor& executor);
void set_updates_made(const Executor& executor, int64_t updates);

}  // namespace strata::program
