// What each of several ranks takes of a step: FOLDER/ranks.jsonl, one JSON object a line, for the run page
// and whoever looks for a slow host.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/file.h"

namespace strata::observe {

struct RankFigures {
  double step_ms = 0;       // its own work, without waiting for other ranks
  double data_wait_ms = 0;  // for the loader
  double memory_bytes = 0;  // resident
};

// Figures of all ranks for the steps up to `step` since the sample before. Thousands of ranks are told in at
// most kMostBins bins of neighbours: bin i of n has ranks [i · ranks / n, (i + 1) · ranks / n). Of steps each
// rank's mean counts, of a bin's ranks the largest.
struct RankSample {
  static constexpr int64_t kMostBins = 64;
  int64_t step = 0, ranks = 0;
  std::vector<RankFigures> bins;
};

// Writes a sample of the first step and of every few steps, and keeps a history for the page: at most
// kMostKept samples, where there are more neighbours as one, with the larger figures. Failures of the disk
// are WorldError.
class RankLog {
 public:
  static constexpr size_t kMostKept = 512;

  // `interval`: steps of a sample. `step`: the last that the run's state holds; samples beyond it, of another
  // number of ranks and torn lines are dropped.
  RankLog(FileSystem& files, const Path& folder, int64_t ranks, int64_t interval, int64_t step);
  ~RankLog();

  void step(int64_t step, std::span<const RankFigures> ranks);
  // Oldest first.
  const std::vector<RankSample>& samples() const { return samples_; }

 private:
  void keep(RankSample sample);

  int64_t interval_;
  std::unique_ptr<WritableFile> file_;
  std::vector<RankSample> samples_;
  std::vector<RankFigures> sums_;  // by rank, since the last sample
  int64_t summed_ = 0;             // steps
};

}  // namespace strata::observe
