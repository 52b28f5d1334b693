// Makes values of a run wrong: weights, gradients, activations, tokens. For debug.inject.
#pragma once

#include <cstdint>
#include <optional>

#include "data/samples/rows.h"
#include "program/executor.h"
#include "train/run_inputs.h"

namespace strata::training {

// How one element is changed.
struct ElementFault {
  enum class Kind : uint8_t { kNan, kInf, kFlip } kind = Kind::kNan;
  // kFlip: chooses the element and its bit. The others change the same one in every run.
  uint64_t draw = 0;
};

// The caller packs the weights again after each of these, together with all ranks.
// Adds noise of `factor` times its root mean square to every matrix. The noise of an element depends on the
// seed, the step, the weight's name and its place in the whole weight only; ranks that hold the same shard add
// the same.
void add_noise(const program::Executor& executor, double factor, uint64_t seed, int64_t step);
// Changes one element of a weight that this rank holds: of a matrix that every token passes if it is not to
// flip.
void change_weight(const program::Executor& executor, const ElementFault& fault);

// An output of an instruction of an action.
struct OutputAt {
  size_t index = 0;  // in the action's list
  size_t operand = 0;
  DType dtype = DType::kF32;
  int64_t elements = 0;
};
// The first output of an action that can be changed when its instruction is done: an activation that a later
// one reads, or a gradient before it is summed over ranks.
std::optional<OutputAt> find_activation(const program::Program& program, const program::Action& action);
std::optional<OutputAt> find_gradient(const program::Program& program, const program::Action& action);
// Call from an Executor::Observer, right after the instruction.
void change_output(const program::Executor& executor, size_t program, const program::Action& action,
                   const OutputAt& at, const ElementFault& fault);

// The first instruction of an action that gathers weights from their shards.
std::optional<size_t> find_gather(const program::Program& program, const program::Action& action);

// Replaces all tokens and targets by random ids: a function of the seed, the step and the rows' samples.
void make_random(data::HostBatch& batch, int64_t vocab_size, uint64_t seed, int64_t step);

}  // namespace strata::training
