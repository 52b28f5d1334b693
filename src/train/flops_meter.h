// The FLOPs of a step and the GEMM peak of the machine.
#pragma once

#include "program/executor.h"
#include "train/run_inputs.h"
#include "train/run_position.h"
#include "train/step_record.h"

namespace strata::training {

// Used by one thread. The first step takes half a second longer if the GEMM peak must be measured.
class FlopsMeter {
 public:
  FlopsMeter(const RunInputs& inputs, const device::Device& device, const RunPosition& position);

  // Adds the step's FLOPs and the peak of all `ranks` to the record. `steps_left`: steps after this one.
  void add_to(StepRecord& record, size_t ranks, int64_t steps_left);

 private:
  double flops_of(const config::StepSize& size) const;

  const device::Device& device_;
  DType dtype_;
  bool warns_;
  const models::ModelConfig& model_;
  data::RowShape shape_;
  int64_t sequence_length_;
  config::StepSize size_;  // of the last step
  double flops_ = 0;       // of a step of this size
  double peak_ = -1;       // FLOP/s of the best GEMM; known after the first step, 0: not measured
};

}  // namespace strata::training
