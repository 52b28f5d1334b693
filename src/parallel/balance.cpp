// Balances the cost of stages.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "parallel/stage_layout.h"

namespace strata::parallel {
namespace {

// Relative difference below which costs count as equal.
constexpr double kSame = 1e-9;

// Splits `items` greedily into ranges that cost at most `most` each: the number of ranges and the cost of the
// most expensive. The number is the largest size_t if a single item costs more.
struct Cut {
  size_t ranges = 0;
  double dearest = 0;
};
Cut fill(const std::vector<double>& items, double most) {
  Cut cut{1, 0};
  double filled = 0;
  for (const double item : items) {
    if (item > most) return {std::numeric_limits<size_t>::max(), item};
    if (filled + item > most) {
      ++cut.ranges;
      filled = 0;
    }
    filled += item;
    cut.dearest = std::max(cut.dearest, filled);
  }
  return cut;
}

// The least possible cost of the most expensive of `stages` ranges.
double least_dearest(const std::vector<double>& items, size_t stages) {
  double enough = 0, too_little = 0;
  for (const double item : items) enough += item;
  for (int halving = 0; halving < 100 && enough - too_little > enough * kSame / 10; ++halving) {
    const double between = (enough + too_little) / 2;
    const Cut cut = fill(items, between);
    if (cut.ranges <= stages) {
      enough = cut.dearest;
    } else {
      too_little = between;
    }
  }
  return enough;
}

// Lengths of `stages` ranges, none empty and none more expensive than `most`, with the least sum of squared
// costs; among equals, with the shorter ranges first.
std::vector<size_t> evenest(const std::vector<double>& items, size_t stages, double most) {
  const size_t n = items.size();
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // For each number of remaining ranges, by first item: the least sum, and the length of the first range.
  std::vector<double> later(n + 1, kNever), now(n + 1);
  later[n] = 0;
  std::vector<std::vector<size_t>> length(stages + 1, std::vector<size_t>(n + 1, 0));
  for (size_t left = 1; left <= stages; ++left) {
    std::fill(now.begin(), now.end(), kNever);
    for (size_t first = 0; first < n; ++first) {
      double cost = 0;
      for (size_t end = first + 1; end <= n; ++end) {
        cost += items[end - 1];
        if (cost > most * (1 + kSame)) break;
        if (later[end] == kNever) continue;
        const double sum = cost * cost + later[end];
        if (now[first] == kNever || sum < now[first] * (1 - kSame)) {
          now[first] = sum;
          length[left][first] = end - first;
        }
      }
    }
    std::swap(later, now);
  }
  std::vector<size_t> lengths;
  for (size_t first = 0, left = stages; left > 0; --left) {
    lengths.push_back(length[left][first]);
    first += lengths.back();
  }
  return lengths;
}

}  // namespace

double cost_of(const StageParts& stage, const PartCosts& costs) {
  double cost = (stage.has_embedding ? costs.embedding : 0) +
                stage.prediction_layers * costs.prediction_layer + (stage.has_head ? costs.head : 0);
  for (int32_t layer = stage.first_layer; layer < stage.first_layer + stage.layers; ++layer)
    cost += costs.layers[static_cast<size_t>(layer)];
  return cost;
}

StageLayout balanced_layout(const PartCosts& costs, const ModelParts& model, int32_t stages,
                            const Words& words) {
  STRATA_CHECK(std::ssize(costs.layers) == model.layers, "costs of {} layers for a model of {}",
               costs.layers.size(), model.layers);
  std::vector<double> items = {costs.embedding};
  items.insert(items.end(), costs.layers.begin(), costs.layers.end());
  items.push_back(costs.head + model.prediction_layers * costs.prediction_layer);
  if (std::cmp_greater(stages, items.size())) {
    throw ConfigError(
        "[{}] found {} stages: a model of {} layers has at most {}, including embedding and head. Use fewer "
        "pipeline ranks, or lower {}",
        words.ranks, stages, model.layers, items.size(), words.virtual_stages);
  }
  const auto count = static_cast<size_t>(stages);
  const std::vector<size_t> lengths = evenest(items, count, least_dearest(items, count));
  StageLayout layout(count);
  size_t first = 0;
  for (size_t s = 0; s < count; ++s) {
    const size_t end = first + lengths[s];
    StageParts& stage = layout[s];
    stage.has_embedding = first == 0;
    stage.has_head = end == items.size();
    stage.first_layer = static_cast<int32_t>(std::max<size_t>(first, 1) - 1);
    stage.layers = static_cast<int32_t>(std::min(end, items.size() - 1) - std::max<size_t>(first, 1));
    if (stage.has_head) stage.prediction_layers = model.prediction_layers;
    first = end;
  }
  return layout;
}

}  // namespace strata::parallel
