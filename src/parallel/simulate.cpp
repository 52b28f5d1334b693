#include "parallel/simulate.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "parallel/action_table.h"
#include "parallel/run_order.h"

namespace strata::parallel {
namespace {

using enum ActionKind;

const StageCost& cost_of(const Costs& costs, int32_t stage) {
  return costs.stages[static_cast<size_t>(stage)];
}

double backward_of(const Costs& costs, int32_t stage) {
  return cost_of(costs, stage).input_grad + cost_of(costs, stage).weight_grad;
}

double time_of(const Costs& costs, const Action& action) {
  switch (action.kind) {
    case kForward:
      return cost_of(costs, action.stage).forward;
    case kInputGrad:
      return cost_of(costs, action.stage).input_grad;
    case kWeightGrad:
      return cost_of(costs, action.stage).weight_grad;
    case kBackward:
      return backward_of(costs, action.stage);
    case kForwardBackward:
      return costs.pair * (cost_of(costs, action.stage).forward + backward_of(costs, action.backward_stage));
  }
  return 0;
}

double peak_of(const std::vector<Action>& actions, const Costs& costs) {
  double held = 0, most = 0;
  for (const Action& action : actions) {
    const bool is_pair = action.kind == kForwardBackward;
    if (action.kind == kForward || is_pair) held += cost_of(costs, action.stage).activations;
    most = std::max(most, held);
    if (is_pair) held -= cost_of(costs, action.backward_stage).activations;
    if (action.kind == kBackward || action.kind == kWeightGrad)
      held -= cost_of(costs, action.stage).activations;
  }
  return most;
}

void check_costs(const Schedule& schedule, const Costs& costs) {
  STRATA_CHECK(std::ssize(costs.stages) == schedule.stages, "costs of {} stages for a schedule of {}",
               costs.stages.size(), schedule.stages);
}

}  // namespace

Costs even_costs(const Schedule& schedule, const StageCost& rank) {
  const double part = static_cast<double>(schedule.rank_count()) / schedule.stages;
  const StageCost stage{rank.forward * part, rank.input_grad * part, rank.weight_grad * part,
                        rank.activations * part};
  return {.stages = std::vector<StageCost>(static_cast<size_t>(schedule.stages), stage)};
}

double Simulation::bubble_share() const {
  double busy = 0;
  for (const RankTimes& rank : ranks) busy += rank.busy;
  return makespan > 0 ? 1 - busy / (makespan * static_cast<double>(ranks.size())) : 0;
}

double Simulation::peak() const {
  double most = 0;
  for (const RankTimes& rank : ranks) most = std::max(most, rank.peak);
  return most;
}

Simulation simulate(const Schedule& schedule, const Costs& costs) {
  check_costs(schedule, costs);
  const ActionTable table(schedule);
  const RunOrder order = run_order(table);
  STRATA_CHECK(order.stuck.empty(), "schedule {} does not come to its end", schedule.name);
  Simulation result;
  result.ranks.resize(schedule.ranks.size());
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    result.ranks[rank].start.resize(schedule.ranks[rank].size());
    result.ranks[rank].end.resize(schedule.ranks[rank].size());
    result.ranks[rank].peak = peak_of(schedule.ranks[rank], costs);
  }
  const auto end_of = [&](int32_t index) {
    const int32_t rank = table.rank_of(index);
    return result.ranks[static_cast<size_t>(rank)].end[static_cast<size_t>(index - table.first_of(rank))];
  };
  for (const int32_t index : order.sequence) {
    const int32_t rank = table.rank_of(index);
    const auto at = static_cast<size_t>(index - table.first_of(rank));
    RankTimes& times = result.ranks[static_cast<size_t>(rank)];
    double start = at > 0 ? times.end[at - 1] : 0;
    const Needs needs = needs_of(table, index);
    for (int32_t i = 0; i < needs.count; ++i) {
      const bool is_sent = table.rank_of(needs.of[i]) != rank;
      start = std::max(start, end_of(needs.of[i]) + (is_sent ? costs.message : 0));
    }
    const double time = time_of(costs, table.action(index));
    times.start[at] = start;
    times.end[at] = start + time;
    times.busy += time;
    result.makespan = std::max(result.makespan, start + time);
  }
  return result;
}

double critical_path(const Schedule& schedule, const Costs& costs) {
  check_costs(schedule, costs);
  const auto stages = static_cast<size_t>(schedule.stages);
  const bool splits = std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [](const auto& actions) {
    return std::any_of(actions.begin(), actions.end(), [](const Action& a) { return a.kind == kInputGrad; });
  });
  // Overlap can make F and B of a pair shorter than their costs.
  const double least = std::min(1.0, costs.pair);
  const auto backward = [&](size_t stage) {
    const StageCost& cost = costs.stages[stage];
    return least * (splits ? cost.input_grad : cost.input_grad + cost.weight_grad);
  };
  // By stage: the least time before its F begins, and after its I or B ends.
  std::vector<double> before(stages + 1, 0), after(stages + 1, 0);
  for (size_t s = 0; s < stages; ++s) {
    const bool crosses = s + 1 < stages && schedule.rank_of_stage[s] != schedule.rank_of_stage[s + 1];
    const double message = crosses ? costs.message : 0;
    before[s + 1] = before[s] + least * costs.stages[s].forward + message;
    after[s + 1] = after[s] + backward(s) + message;
  }
  double longest = before[stages] + after[stages];
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    double earliest = longest, follows = longest, busy = 0;
    for (const Action& action : schedule.ranks[rank]) {
      const auto stage = static_cast<size_t>(action.stage);
      busy += time_of(costs, action);
      earliest = std::min(earliest, before[stage]);
      const auto ends =
          static_cast<size_t>(action.kind == kForwardBackward ? action.backward_stage : action.stage);
      if (action.kind == kWeightGrad) follows = 0;
      if (action.kind == kBackward || action.kind == kForwardBackward)
        follows = std::min(follows, after[ends]);
    }
    longest = std::max(longest, earliest + busy + follows);
  }
  return longest;
}

std::vector<LiveCounts> live_counts(const Schedule& schedule) {
  std::vector<LiveCounts> counts(schedule.ranks.size());
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    LiveCounts now, &most = counts[rank];
    for (const Action& action : schedule.ranks[rank]) {
      const bool ends_all = action.kind == kBackward || action.kind == kForwardBackward;
      if (action.kind == kForward || action.kind == kForwardBackward) {
        ++now.forward_to_input_grad;
        ++now.forward_to_weight_grad;
      }
      if (action.kind == kInputGrad) ++now.input_to_weight_grad;
      most.forward_to_input_grad = std::max(most.forward_to_input_grad, now.forward_to_input_grad);
      most.forward_to_weight_grad = std::max(most.forward_to_weight_grad, now.forward_to_weight_grad);
      most.input_to_weight_grad = std::max(most.input_to_weight_grad, now.input_to_weight_grad);
      if (action.kind == kInputGrad || ends_all) --now.forward_to_input_grad;
      if (action.kind == kWeightGrad || ends_all) --now.forward_to_weight_grad;
      if (action.kind == kWeightGrad) --now.input_to_weight_grad;
    }
  }
  return counts;
}

}  // namespace strata::parallel
