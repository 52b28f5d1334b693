// A training run without its loop, on which benchmarks measure individual costs.
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

// The validated configuration of a benchmark: defaults, llama3-29m, synthetic token files (tokens_path of
// `folder`), of which 1 % is held out; then `sets`.
config::RunConfig bench_config(const std::vector<std::string>& sets, const Path& folder);

// A benchmark's folder: below run.folder if `sets` has it (to measure another disk), else in the temporary
// directory. The destructor removes it with its contents; the constructor removes folders that killed
// benchmarks left there.
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
  // Writes tokens, resolves every "auto", compiles, allocates, and fills weights.
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
  // "llama3-29m, 64 x 512 tokens per step in micro-batches of 4, f32, 2 threads".
  std::string describe() const;

  // Uploads the rows of one micro-batch from the batch of a whole step.
  void copy_batch(const data::HostBatch& from, int64_t micro_batch);
  // Runs the actions of one micro-batch, without interleaved actions of others.
  void compute_micro_batch(int32_t micro_batch);
  // Seconds of a step without loading data: the median time of each kind of action, times its occurrences in
  // the schedule. Measures for about `budget` seconds.
  double step_seconds(double budget);

 private:
  BenchFolder folder_;
  std::optional<data::SampleSource> samples_;
  std::unique_ptr<program::Executor> executor_;
};

// Settings followed by more, which override them.
std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& more);

// How to start this program.
struct Launch {
  int ranks = 1;
  bool by_mpirun = false;  // ranks are processes; else threads of one
  Path program = {};       // another than this one
  double seconds = 0;      // after which the processes are killed; 0: never
};
// Whether mpirun is in PATH.
bool has_mpirun();

// Runs `strata WORDS` in a separate process, or in several by mpirun, with its output in `log`. If it fails,
// throws a WorldError with the end of the output.
struct SelfRun {
  double seconds = 0, cpu_seconds = 0;
  int64_t peak_resident_bytes = 0;
};
SelfRun run_self(std::vector<std::string> words, const Path& log, const Launch& launch = {});

// Measurements of a complete `strata train` of a few steps on cached tokens, in separate processes.
struct ChildRun {
  double instruction_seconds = 0;  // from the start of the process to the first instruction
  double first_step_seconds = 0;
  double steady_step_seconds = 0;  // median of the later ones
  // Mean of the later steps including everything between them: from the end of the first step to that of the
  // last.
  double whole_step_seconds = 0;
  int64_t peak_resident_bytes = 0;
};
// At least two steps. If the run fails, throws a WorldError with the end of its output.
ChildRun run_child(const std::vector<std::string>& sets, int64_t steps, const Launch& launch = {});
// The same of a configuration, on synthetic tokens in place of its data and in a new folder.
ChildRun run_child(const config::RunConfig& config, int64_t steps, const Launch& launch);

}  // namespace strata::benchmarks
