// Logs each rank's step time, data waits and memory to FOLDER/ranks.jsonl, one JSON object per line, for the
// run page and for finding slow hosts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/file.h"

namespace strata::observe {

struct RankFigures {
  double step_ms = 0;       // without waiting for other ranks
  double data_wait_ms = 0;  // waiting for the loader
  double memory_bytes = 0;  // resident
};

// Figures of all ranks for the steps since the previous sample, up to `step`. Neighbouring ranks share at
// most kMostBins bins: bin i of n has ranks [i · ranks / n, (i + 1) · ranks / n). A bin has the largest of
// its ranks' means over the steps.
struct RankSample {
  static constexpr int64_t kMostBins = 64;
  int64_t step = 0, ranks = 0;
  std::vector<RankFigures> bins;
};

// Writes a sample for the first step and one for every `interval` steps, and keeps a history for the page of
// at most kMostKept samples: beyond that, neighbours are merged, with the larger figures. Disk errors are
// WorldError.
class RankLog {
 public:
  static constexpr size_t kMostKept = 512;

  // `interval`: steps per sample. `step`: the last step of the restored state; later samples, samples of
  // another number of ranks and torn lines are dropped.
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

// The samples of a ranks.jsonl, oldest first, without torn and other lines. None if there is no file.
std::vector<RankSample> read_rank_log(const Path& path);

}  // namespace strata::observe
