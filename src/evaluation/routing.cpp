#include "evaluation/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/experts/experts.h"

namespace strata::evaluation {
namespace {

// The operand of a node with the expert ids of tokens, and the number of experts.
struct Choice {
  int ids = -1;
  int64_t experts = 0;
};
Choice choice_of(const graph::Node& node) {
  if (node.op == &ops::PlanDispatch::def && node.loop == graph::kNone)
    return {graph::position_of<ops::PlanDispatch::In>("ids"), node.attrs.as<ops::DispatchAttrs>().experts};
  // With offsets, the tokens were received from other ranks.
  if (node.op == &ops::ExpertsIn::def && graph::inputs_of<ops::ExpertsIn>(node).offsets == graph::kNone)
    return {graph::position_of<ops::ExpertsIn::In>("ids"), node.attrs.as<ops::ExpertsAttrs>().experts};
  return {};
}

class RoutingCounter final : public program::Executor::Observer {
 public:
  explicit RoutingCounter(program::Executor& executor) : executor_(executor) { executor.observe(this); }
  ~RoutingCounter() override { executor_.observe(nullptr); }
  RoutingCounter(const RoutingCounter&) = delete;
  RoutingCounter& operator=(const RoutingCounter&) = delete;

  void begin(const data::HostBatch& rows) { targets_ = rows[Column::kTargets]; }

  void instruction(size_t index, const program::Action& action, size_t at, double, double) override {
    const program::Program& program = executor_.program(index);
    const program::Instruction& instruction = program.list_of(action)[at];
    const graph::Node& node = program.node_of(instruction);
    const Choice choice = choice_of(node);
    if (choice.ids < 0) return;
    const Shape& shape = program.graph.value(node.inputs[static_cast<size_t>(choice.ids)]).shape;
    ids_.resize(static_cast<size_t>(shape.elements()));
    executor_.download_operand(index, action, instruction, static_cast<size_t>(choice.ids), ids_.data(),
                               static_cast<int64_t>(ids_.size() * sizeof(int32_t)));
    std::vector<int64_t>& counts = counts_[node.layer];
    counts.resize(static_cast<size_t>(choice.experts));
    const auto tokens = static_cast<size_t>(shape[0]), k = static_cast<size_t>(shape[1]);
    // An encoder's tokens have no targets.
    const bool has_targets = targets_.size() == tokens;
    for (size_t pair = 0; pair < ids_.size(); ++pair) {
      const bool counts_here = !has_targets || targets_[pair / k] >= 0;
      if (counts_here) ++(ids_[pair] >= 0 ? counts[static_cast<size_t>(ids_[pair])] : dropped_[node.layer]);
    }
  }

  LayerCounts layers() const {
    LayerCounts layers;
    for (const auto& [layer, counts] : counts_) layers.push_back({layer, counts});
    return layers;
  }
  std::vector<int64_t> dropped() const {
    std::vector<int64_t> dropped;
    for (const auto& [layer, counts] : counts_)
      dropped.push_back(dropped_.contains(layer) ? dropped_.at(layer) : 0);
    return dropped;
  }

 private:
  program::Executor& executor_;
  std::vector<int32_t> targets_, ids_;
  std::map<int64_t, std::vector<int64_t>> counts_;  // by layer
  std::map<int64_t, int64_t> dropped_;
};

double entropy_of(const std::vector<double>& shares) {
  double entropy = 0;
  for (const double share : shares) {
    if (share > 0) entropy -= share * std::log2(share);
  }
  return entropy;
}

}  // namespace

RoutingResult evaluate_routing(program::Executor& executor, size_t index, const data::EvalWindows& windows,
                               const std::function<bool(double)>& go_on) {
  RoutingCounter counter(executor);
  RoutingResult result;
  result.loss =
      evaluate(executor, index, windows, go_on, [&](const data::HostBatch& rows) { counter.begin(rows); });
  result.layers = counter.layers();
  result.dropped = counter.dropped();
  return result;
}

Specialisation specialisation_of(const std::vector<std::vector<int64_t>>& sources) {
  std::vector<double> mean;
  double entropies = 0, counted = 0;
  for (const std::vector<int64_t>& counts : sources) {
    const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    if (all == 0) continue;
    std::vector<double> shares;
    for (const int64_t count : counts) shares.push_back(static_cast<double>(count) / all);
    mean.resize(shares.size());
    for (size_t i = 0; i < shares.size(); ++i) mean[i] += shares[i];
    entropies += entropy_of(shares);
    ++counted;
  }
  if (counted < 2) return {};
  for (double& share : mean) share /= counted;
  const double information = std::max(0.0, entropy_of(mean) - entropies / counted);
  return {information, information / std::log2(counted)};
}

double mean_specialisation(const std::vector<LayerCounts>& sources) {
  double sum = 0;
  const size_t layers = sources.empty() ? 0 : sources.front().size();
  for (size_t i = 0; i < layers; ++i) {
    std::vector<std::vector<int64_t>> counts;
    for (const LayerCounts& source : sources) counts.push_back(source[i].tokens);
    sum += specialisation_of(counts).share / static_cast<double>(layers);
  }
  return sum;
}

}  // namespace strata::evaluation
