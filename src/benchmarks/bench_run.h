// A training run without its loop: what the benchmarks measure the single costs of a run on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/plan.h"
#include "data/samples/loader.h"
#include "data/samples/sample_source.h"
#include "models/model.h"
#include "observe/metrics.h"
#include "program/executor.h"
#include "train/run_store.h"

namespace strata::benchmarks {

// The configuration of a benchmark: all defaults, llama3-29m, made-up token files (tokens_path of `folder`),
// a hundredth of them held out as of text; then `sets`. Validated.
config::RunConfig bench_config(const std::vector<std::string>& sets, const Path& folder);

// A folder of a benchmark's own, below run.folder where `sets` name it (so that another disk can be measured)
// and else among the temporary files; removed with all in it at the end. Folders that killed benchmarks left
// in the same place are removed first.
class BenchFolder {
 public:
  explicit BenchFolder(const std::vector<std::string>& sets);
  ~BenchFolder();
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;
  const Path& path() const { return path_; }

 private:
  Path path_;
  std::optional<FileLock> lock_;
};

class BenchRun {
 public:
  // Makes tokens, resolves every "auto", compiles, allocates and fills weights.
  explicit BenchRun(const std::vector<std::string>& sets);

  config::RunConfig config;
  models::ModelConfig model;
  config::RunData data;

  program::Executor& executor() { return *executor_; }
  const data::SampleSource& samples() const { return *samples_; }
  const Path& folder() const { return folder_.path(); }
  int64_t step_tokens() const { return config.training.global_batch_size * config.training.sequence_length; }
  int64_t micro_batches() const {
    return config.training.global_batch_size / *config.training.micro_batch_size;
  }
  std::string describe() const;  // "llama3-29m, 64 x 512 tokens a step in micro-batches of 4, f32"

  // Copies the rows of one micro-batch from a batch of the whole step.
  void copy_batch(const data::HostBatch& from, int64_t micro_batch);
  // Its actions, without those of others between them.
  void compute_micro_batch(int32_t micro_batch);
  // Seconds of a step of the whole batch without its data: of each action that differs from the others the
  // typical time, as often as the script has it. Measures for about `budget` seconds.
  double step_seconds(double budget);

 private:
  BenchFolder folder_;
  std::optional<data::SampleSource> samples_;
  std::unique_ptr<program::Executor> executor_;
};

// How a process of this program is started.
struct Launch {
  int ranks = 1;
  bool by_mpirun = false;  // as processes; else as threads of one
};
// Whether there is an mpirun to start processes with.
bool has_mpirun();

// `strata WORDS` as a process of its own, or as those that mpirun starts; what it prints in `log`. WorldError
// with the end of that when it fails.
struct SelfRun {
  double seconds = 0, cpu_seconds = 0;
  int64_t peak_resident_bytes = 0;
};
SelfRun run_self(std::vector<std::string> words, const Path& log, const Launch& launch = {});

// A whole `strata train` of a few steps on cached tokens, as processes of its own.
struct ChildRun {
  double instruction_seconds = 0;  // from the start of the process to the first instruction
  double first_step_seconds = 0;
  double steady_step_seconds = 0;  // median of the later ones
  // Of the later ones with all that is between them: from the end of the first to the end of the last.
  double whole_step_seconds = 0;
  int64_t peak_resident_bytes = 0;
};
// At least two steps. WorldError with the end of its messages when it fails.
ChildRun run_child(const std::vector<std::string>& sets, int64_t steps, const Launch& launch = {});

}  // namespace strata::benchmarks
