#include "train/expert_load.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace strata::train {

ExpertWatch::ExpertWatch(const models::ModelConfig& model, const graph::Graph& graph) {
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    std::string name = "layers." + std::to_string(layer) + ".ffn.expert_tokens";
    // Other stages of a pipeline have layers of their own.
    if (model.experts.at(layer) && graph.find_value(name) != graph::kNone) names_.push_back(std::move(name));
  }
}

ExpertLoad ExpertWatch::read(const program::Executor& executor) const {
  std::vector<std::vector<int64_t>> layers;
  for (const std::string& name : names_) layers.push_back(executor.read_all<int64_t>(name));
  return load_of(layers);
}

ExpertLoad load_of(const std::vector<std::vector<int64_t>>& layers) {
  ExpertLoad load;
  for (const std::vector<int64_t>& counts : layers) {
    const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    const auto experts = static_cast<double>(counts.size());
    load.dead += std::count(counts.begin(), counts.end(), 0);
    if (all == 0) continue;
    const auto most = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
    load.max_violation = std::max(load.max_violation, most * experts / all - 1);
    double entropy = 0;
    for (const int64_t count : counts) {
      const double share = static_cast<double>(count) / all;
      if (count > 0) entropy -= share * std::log(share);
    }
    load.entropy +=
        (counts.size() > 1 ? entropy / std::log(experts) : 1) / static_cast<double>(layers.size());
  }
  return load;
}

}  // namespace strata::train
