// The steps of a run and the samples of each, from the run's records and without running anything: the steps
// that it made, without those that a rollback or a resume has undone, and the planned ones.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/function_ref.h"
#include "config/plan.h"
#include "data/samples/sample_source.h"
#include "train/journal.h"
#include "train/run_store.h"

namespace strata::training {

struct StepSamples {
  int64_t step = 0;
  bool is_made = false;                         // otherwise planned
  const data::SampleSource& samples;            // the order that holds in this step
  int64_t first = 0, count = 0;                 // as `samples` numbers them: without those in data.skip
  std::shared_ptr<const config::RunPlan> plan;  // with the tokens
};

class RunSteps {
 public:
  // Reads the run's files and opens its tokens. ConfigError for a folder without a run; DataError if its
  // tokens are no longer those that it was trained on.
  RunSteps(FileSystem& files, const Path& run);

  // The samples of earlier steps are not known: another run made them, or the tokens were others. `why` is
  // the reason; empty if there are no earlier steps.
  int64_t first() const { return first_; }
  const std::string& why() const { return why_; }
  int64_t made() const { return history_.last(); }

  // Calls `visit` for every step from first() to the last planned one, until it returns false. Returns the last
  // step. DataError if the run's record of a step contradicts its configuration and journal.
  int64_t visit(FunctionRef<bool(const StepSamples&)> visit) const;

 private:
  struct MadeStep {
    std::optional<int64_t> first_sample, tokens;  // as recorded; older runs lack them
    size_t start = 0;                             // the start of the program that made it
  };
  struct History {
    int64_t first = 1;  // the number of steps[0]
    std::vector<MadeStep> steps;
    // By each start of the program: the keys that it changed, with their values before.
    std::vector<std::map<std::string, std::string>> starts;
    bool is_branch = false;

    int64_t last() const { return first + std::ssize(steps) - 1; }
    size_t start_of(int64_t step) const;
    const MadeStep* find(int64_t step) const;
  };
  static History read_history(const Path& run);
  void find_first();
  std::optional<TrainingState> state_at(int64_t step) const;
  // With the configuration that held after one of the starts.
  std::shared_ptr<const config::RunPlan> plan_of_start(size_t start) const;
  void check_tokens(const config::RunPlan& plan) const;

  FileSystem& files_;
  Path run_;
  History history_;
  Journal journal_;
  std::map<int64_t, Path> checkpoints_;  // by step
  int64_t first_ = 1;
  std::string why_;
  TrainingState begin_;  // before the first step
};

}  // namespace strata::training
