// Records timelines of the steps in profile.steps.
#pragma once

#include <vector>

#include "base/file.h"
#include "observe/trace.h"
#include "program/executor.h"
#include "train/run_inputs.h"

namespace strata::training {

// Observes the executor during chosen steps and writes FOLDER/traces/step-XXXXXXXX.json, with a suffix on
// every rank except the first. Used by one thread. WorldError for disk errors.
class StepTraces final : public program::Executor::Observer {
 public:
  // `executor` must outlive it.
  StepTraces(const RunInputs& inputs, FileSystem& files, const Path& folder, program::Executor& executor);

  // Whether the step is traced: it must not have begun before begin().
  bool is_due(int64_t step) const;
  void begin(int64_t step);
  void end(int64_t step);

  void instruction(size_t program, const program::Action& action, size_t index, double begin,
                   double end) override;

 private:
  RunInputs inputs_;
  FileSystem& files_;
  Path folder_;
  program::Executor& executor_;
  bool traces_ = false;
  std::vector<observe::TraceEvent> events_;
};

}  // namespace strata::training
