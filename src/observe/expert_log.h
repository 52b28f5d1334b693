// How many tokens went to each expert of each layer: FOLDER/experts.jsonl, one JSON object a line, for the
// run page and whoever looks for experts that nobody uses.
#pragma once

#include <memory>
#include <vector>

#include "base/file.h"
#include "observe/expert_load.h"

namespace strata::observe {

// Counts of the `steps` steps that end with `step`.
struct ExpertSample {
  int64_t step = 0, steps = 0;
  std::vector<LayerTokens> layers;
};

// Writes a sample of the first step and of every few steps. The file stays small however long a run is: where
// there would be more than kMostKept samples, each two neighbours become one, and the later ones are of twice
// as many steps. Failures of the disk are WorldError.
class ExpertLog {
 public:
  static constexpr size_t kMostKept = 256;

  // `interval`: steps of a sample. `step`: the last that the run's state holds; samples beyond it and torn
  // lines are dropped.
  ExpertLog(FileSystem& files, const Path& folder, int64_t interval, int64_t step);
  ~ExpertLog();

  // The same layers, with as many experts, at every step.
  void step(int64_t step, const std::vector<LayerTokens>& layers);
  // The steps since the last sample become one: the run ends, or its state is saved, which a
  // resume then finds whole.
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

}  // namespace strata::observe
