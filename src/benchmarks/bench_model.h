// A model with random weights and tokens, which benchmarks train for a few steps.
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
  std::vector<std::string> sets;  // settings of the same case, with one micro-batch per step
  models::ModelConfig model;
  int64_t sequences = 8;
  int64_t sequence_length = 512;
  data::RowShape row{512, 1, 512, 0};  // the shape of a sequence
  DType dtype = DType::kF32;
  std::shared_ptr<const program::Precision> precision = {};  // the recipe; nullptr: none

  std::string name() const;  // "llama3-29m 8x512 bf16", with a recipe "… block"
};
BenchCase preset_case(const std::string& preset, int64_t sequences, int64_t sequence_length, DType dtype);
// The case of a configuration: its model, one micro-batch, its precision.
BenchCase case_of_sets(const std::vector<std::string>& sets);

class BenchModel {
 public:
  // Compiles, allocates, and fills weights and tokens: on the processor with `threads` threads, or on a device.
  BenchModel(const BenchCase& bench, int threads);
  BenchModel(const BenchCase& bench, const std::shared_ptr<device::Device>& device);

  const BenchCase& bench() const { return case_; }
  program::Executor& executor() { return *executor_; }
  const program::Program& program() const { return executor_->program(0); }
  // Model FLOPs per step, as in reports.
  double flops() const;
  int64_t tokens() const { return case_.sequences * case_.sequence_length; }  // as in reports

  double compile_seconds() const { return compile_seconds_; }
  double fill_seconds() const { return fill_seconds_; }  // arena, weights, packed layouts

  // Runs one whole step: forward, backward, update, packing. Returns its seconds.
  double step();
  // Time per step since the last reset, by kernel family or by op.
  enum class By { kFamily, kOp };
  program::StepTotal measured(By by = By::kFamily) const;
  void reset();

 private:
  void fill_batch();

  BenchCase case_;
  std::unique_ptr<program::Executor> executor_;
  double compile_seconds_ = 0, fill_seconds_ = 0;
  int64_t timed_ = 0;  // steps since the last reset
};

// Writes the per-step parameters of program 0, before the first micro-batch.
void write_hyper(program::Executor& executor);

// The dtypes that are fast on this machine: fp32, and bf16 if it is faster.
std::vector<DType> fast_dtypes(int threads);

double median(std::vector<double> values);

// The device of one of `ranks` ranks of this host with `threads` threads each, measured while the others are as busy;
// exchanges as two ranks make them that do nothing else. Takes some seconds.
hardware::DeviceSpec measured_rank(int ranks, int threads);

}  // namespace strata::benchmarks
