// Values that the host sends to a training program and reads from its optimizers: the constants and the
// learning rate of a step before its first micro-batch, and the number of updates made.
#pragma once

#include <optional>
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

// Whether losses are scaled: the activations are fp16.
bool scales_loss(const Executor& executor);
// Before the first step of a run or of a part of it, after its state is loaded: sets the scale to `fixed`, or
// if that is unset and the state has no adaptive one, to the first of the rule (optim/loss_scale.h). Does
// nothing for a program that scales no loss.
void start_loss_scale(const Executor& executor, std::optional<float> fixed = {});

// Device state, which instructions count on; a skipped step makes no update.
int64_t updates_made(const Executor& executor);
void set_updates_made(const Executor& executor, int64_t updates);

}  // namespace strata::program
