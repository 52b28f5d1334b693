// Values that the host sends to a training program and reads from its optimizers: the constants and the
// learning rate of a step before its first micro-batch, and the number of updates made.
#pragma once

#include <span>

#include "optim/optimizer.h"
#include "program/executor.h"

namespace strata::program {

void write_hyper(const Executor& executor, const optim::UpdateHyper& hyper);

// The terms of each loss in the coming step, of all ranks, where the program has several losses with terms of
// their own (models/head.h): the main one's, then those of further tokens. Before the first micro-batch.
void write_terms(const Executor& executor, std::span<const int64_t> terms);

// The values of accepted steps, and the decision on the newest step.
optim::GuardHistory guard_history(const Executor& executor);
void set_guard_history(const Executor& executor, const optim::GuardHistory& history);
optim::GuardDecision decision_of(const Executor& executor);

// Device state, which instructions count on; a skipped step makes no update.
int64_t updates_made(const Executor& executor);
void set_updates_made(const Executor& executor, int64_t updates);

}  // namespace strata::program
