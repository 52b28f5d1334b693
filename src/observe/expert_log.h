// Logs the number of tokens of each expert of each layer to FOLDER/experts.jsonl, one JSON object per line,
// for the run page and for finding unused experts.
#pragma once

#include <memory>
#include <vector>

#include "base/file.h"
#include "observe/expert_load.h"

namespace strata::observe {

// Counts over `steps` steps, the last of which is `step`.
struct ExpertSample {
  int64_t step = 0, steps = 0;
  std::vector<LayerTokens> layers;
};

// Writes a sample for the first step and one for every `interval` steps. The file stays small in long runs:
// beyond kMostKept samples, pairs of neighbours are merged and the interval doubles. Disk errors are
// WorldError.
class ExpertLog {
 public:
  static constexpr size_t kMostKept = 256;

  // `interval`: steps per sample. `step`: the last step of the restored state; later samples and torn lines
  // are dropped.
  ExpertLog(FileSystem& files, const Path& folder, int64_t interval, int64_t step);
  ~ExpertLog();

  // Every step must have the same layers and numbers of experts.
  void step(int64_t step, const std::vector<LayerTokens>& layers);
  // Writes the steps since the last sample as a sample. Call at the end of a run and when its state is saved,
  // so that a resume loses no steps.
  void flush();
  // Oldest first.
  const std::vector<ExpertSample>& samples() const { return samples_; }

 private:
  void halve();

  FileSystem& files_;
  Path path_;
  int64_t interval_;
  std::unique_ptr<WritableFile> file_;
  std::vector<ExpertSample> samples_;
  ExpertSample open_;  // since the last sample
};

// The samples of a experts.jsonl, oldest first, without torn and other lines. None if there is no file.
std::vector<ExpertSample> read_expert_log(const Path& path);

}  // namespace strata::observe
