// Reads what a step's statistics have measured (program/statistics.h), of all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "observe/layer_log.h"
#include "ops/statistics/statistics.h"
#include "program/metrics.h"
#include "train/noise_scale.h"

namespace strata::training {

// One value of the model, over all ranks that hold it.
struct MeasuredValue {
  program::Statistic of;
  StatisticsTable table;
};

struct StepStatistics {
  std::vector<MeasuredValue> values;  // in the order of the first rank that has each
  std::vector<NoiseSquares> noise;    // empty: not measured
  // Mean over all matrices of the root mean square of the update, divided by that of the weights.
  std::optional<double> update_ratio;
  // Bounds that no logit and no attention score of the step exceeds, biases and caps aside: the greatest norm
  // of a row of the head's input, times that of a row of the head; of queries, times that of keys and the
  // scale, the maximum over layers.
  std::optional<double> logit_max, attention_max;
  double tokens = 0;        // with a target, by which gradients are divided
  bool has_layers = false;  // whether layers.jsonl gets a line
};
std::vector<observe::LayerStatistics> layers_of(const StepStatistics& statistics);

// All ranks construct one, and call each function in the same steps.
class StatisticsWatch {
 public:
  // Steps between measurements of the noise scale.
  static constexpr int64_t kNoiseEvery = 10;

  StatisticsWatch(const program::Executor& executor, size_t program);

  // Before the first micro-batch of a step: turns on the groups that are due. `every`: steps between lines
  // of layers.jsonl; 0: none.
  void begin(int64_t step, int64_t every);
  // Before the step's update: read() is of this step, also once the next one has begun.
  void end() { measured_ = turned_on_; }
  // Measures everything in the steps that follow.
  void measure_all() { all_ = true; }
  // After the step; nullopt if it measured nothing. `tokens`: with a target, over all ranks. `loss_scale`:
  // what gradients were multiplied by, and are divided by here; 0: nothing.
  std::optional<StepStatistics> read(double tokens, double loss_scale) const;

  // Digests of what this rank holds, and the first rank that holds the same; 0: it has no weights, or no other
  // rank holds the same gradients.
  uint64_t weights_digest() const { return digest_of(weights_); }
  uint64_t gradients_digest() const { return digest_of(gradients_); }
  uint64_t used_weights_digest() const { return digest_of(used_weights_); }
  int64_t first_replica() const;
  // Whether no earlier rank has the same weights; weights that a pipeline's stages share count on the first.
  bool is_first_with_weights() const { return weights_.is_reported(); }
  // The digest that the weights of all ranks make in their order; 0 for those that another rank has too.
  static uint64_t joined_digest(const std::vector<uint64_t>& of_ranks);

 private:
  void find_values();
  static uint64_t digest_of(const program::Metric& metric);

  const program::Executor& executor_;
  size_t program_;
  bool all_ = false;
  struct Groups {
    int64_t mask = 0;
    bool has_layers = false;
  };
  Groups turned_on_, measured_;  // of the step that has begun last, and of the newest one that is over
  program::Metric weights_, gradients_, used_weights_;  // digests
  std::vector<program::Metric> tables_;                 // of this rank, as in Program::statistics
  std::vector<program::Statistic> values_;              // of all ranks
  std::vector<std::vector<size_t>> places_;             // by rank: the values of its tables
};

// 16 hexadecimal digits, as metrics.jsonl has it.
std::string digest_text(uint64_t digest);

}  // namespace strata::training
