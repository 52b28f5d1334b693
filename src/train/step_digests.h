// Digests of everything that a step computes: two executions of one step are compared instruction by
// instruction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "program/executor.h"

namespace strata::training {

// An output of an instruction.
struct ComputedValue {
  std::string instruction;  // "forward 0, micro-batch 2: L3 linear"
  std::string tensor;       // the value's name
  int64_t layer = -1;
  int64_t micro_batch = -1;
  int64_t place = 0;  // in the order of execution
};

// Observes an executor while it exists. It reads the outputs of every instruction: a step takes several times
// as long. Used by the thread that runs the executor, which must outlive it.
class StepDigests final : public program::Executor::Observer {
 public:
  StepDigests(program::Executor& executor, size_t program);
  ~StepDigests() override;
  StepDigests(const StepDigests&) = delete;
  StepDigests& operator=(const StepDigests&) = delete;

  void instruction(size_t program, const program::Action& action, size_t index, double begin,
                   double end) override;
  bool wants_results() const override { return true; }

  // The first output that differs from another execution's; nullopt: none.
  std::optional<ComputedValue> first_difference(const StepDigests& other) const;
  // The first output that has a NaN or an infinity; the instruction's text ends with its sequence, position and,
  // of a recurrence, head.
  std::optional<ComputedValue> first_nonfinite() const;

 private:
  struct Row {
    uint64_t digest = 0;
    int64_t nonfinite = -1;  // the first element that is a NaN or an infinity
    program::Action action;
    int32_t node = 0, output = 0;
    bool operator==(const Row&) const = default;
  };
  ComputedValue value_of(size_t row) const;

  program::Executor& executor_;
  size_t program_;
  std::vector<Row> rows_;
  std::vector<std::byte> bytes_;  // of an output
};

}  // namespace strata::training
