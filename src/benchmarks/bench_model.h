// A model with random weights and tokens that takes training steps: what the benchmarks run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/samples/objective.h"
#include "models/model.h"
#include "program/executor.h"
#include "program/predict.h"
#include "tensor/dtype.h"

namespace strata::benchmarks {

struct BenchCase {
  std::string label;              // the preset, or the family
  std::vector<std::string> sets;  // the same case as a run of one micro-batch a step
  models::ModelConfig model;
  int64_t sequences = 8;
  int64_t sequence_length = 512;
  data::RowShape row{512, 1, 512, 0};  // the places of a sequence
  DType dtype = DType::kF32;

  std::string name() const;  // "llama3-29m 8x512 bf16"
};
BenchCase preset_case(const std::string& preset, int64_t sequences, int64_t sequence_length, DType dtype);
// The one case that a configuration describes: its model, a micro-batch of it, its precision.
BenchCase case_of_sets(const std::vector<std::string>& sets);

class BenchModel {
 public:
  // Compiles, allocates, fills weights and tokens.
  BenchModel(const BenchCase& bench, int threads);

  const BenchCase& bench() const { return case_; }
  program::Executor& executor() { return *executor_; }
  const program::Program& program() const { return executor_->program(0); }
  // Model FLOPs of a step, as reports count them.
  double flops() const;
  int64_t tokens() const { return case_.sequences * case_.sequence_length; }  // as a run counts them

  double compile_seconds() const { return compile_seconds_; }
  double fill_seconds() const { return fill_seconds_; }  // arena, weights, encodings

  // One whole step: forward, backward, update, encode. Seconds.
  double step();
  // What the steps since the last reset took, a step, by kernel family or by op.
  enum class By { kFamily, kOp };
  program::StepTotal measured(By by = By::kFamily) const;
  void reset();

 private:
  void fill_batch();

  BenchCase case_;
  std::unique_ptr<program::Executor> executor_;
  double compile_seconds_ = 0, fill_seconds_ = 0;
  int64_t timed_ = 0;  // since the last reset
};

// What a step of program 0 is told before its first micro-batch.
void write_hyper(program::Executor& executor);

// The dtypes that are fast on this machine: fp32, and bf16 where it is faster.
std::vector<DType> fast_dtypes(int threads);

double median(std::vector<double> values);

}  // namespace strata::benchmarks
