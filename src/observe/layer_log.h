// Logs statistics of every layer to FOLDER/layers.jsonl, one JSON object per line:
// {"step":…,"layers":[{"layer":…,"tensor":…,"grad_rms":…,…},…]}. What a tensor or a value does not have is
// null.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"

namespace strata::observe {

// A parameter, or a value of a layer.
struct LayerStatistics {
  std::optional<int64_t> layer;  // of the model; nullopt: outside of layers
  std::string tensor;
  std::optional<double> grad_rms, weight_rms;
  std::optional<double> update_ratio;  // root mean squares: of the update, to that of the weights
  std::optional<double> act_rms, act_max, zero_share;
};
std::string layers_line(int64_t step, const std::vector<LayerStatistics>& layers);

// The file stays small in long runs: beyond kMostKept lines every second one is removed, and the interval
// doubles. Disk errors are WorldError.
class LayerLog {
 public:
  static constexpr size_t kMostKept = 256;

  // `interval`: steps between lines. `step`: the last step of the restored state; later lines and torn ones
  // are dropped.
  LayerLog(FileSystem& files, const Path& folder, int64_t interval, int64_t step);
  ~LayerLog();

  // Writes a line if the step is a multiple of the interval.
  void step(int64_t step, const std::vector<LayerStatistics>& layers);

 private:
  struct Line {
    int64_t step = 0;
    std::string text;
  };
  void halve();
  void rewrite();

  FileSystem& files_;
  Path path_;
  int64_t interval_;
  std::unique_ptr<WritableFile> file_;
  std::vector<Line> lines_;
};

}  // namespace strata::observe
