#include "plan/pipeline_walk.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "parallel/messages.h"
#include "parallel/schedules.h"

namespace strata::planning {
namespace {

template <typename Key, typename Value>
class Cache {
 public:
  template <typename Make>
  std::shared_ptr<const Value> get(const Key& key, Make make) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = values_.find(key);
      if (found != values_.end()) return found->second;
    }
    auto made = std::make_shared<const Value>(make());
    const std::lock_guard lock(mutex_);
    return values_.try_emplace(key, std::move(made)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const Value>> values_;
};

// A backward pass that is split is so in every action, as the compiler runs them: B is I and W, FB is F, I and W
// (program/pipeline.cpp).
parallel::Schedule as_run(parallel::Schedule schedule) {
  using enum parallel::ActionKind;
  const parallel::ScheduleKind* kind = parallel::find_schedule_kind(schedule.name);
  if (!kind->splits_backward) return schedule;
  for (std::vector<parallel::Action>& actions : schedule.ranks) {
    std::vector<parallel::Action> run;
    for (const parallel::Action& action : actions) {
      const bool pair = action.kind == kForwardBackward;
      if (!pair && action.kind != kBackward) {
        run.push_back(action);
        continue;
      }
      if (pair) run.push_back({kForward, action.micro_batch, action.stage});
      const int32_t micro_batch = pair ? action.backward_micro_batch : action.micro_batch;
      const int32_t stage = pair ? action.backward_stage : action.stage;
      run.push_back({kInputGrad, micro_batch, stage});
      run.push_back({kWeightGrad, micro_batch, stage});
    }
    actions = std::move(run);
  }
  return schedule;
}

// All actions by their start where every stage takes as long: what an action needs starts before it.
std::vector<parallel::Action> in_order(const parallel::Schedule& schedule) {
  const parallel::Simulation even = parallel::simulate(schedule, parallel::even_costs(schedule));
  std::vector<std::pair<double, const parallel::Action*>> actions;
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (size_t i = 0; i < schedule.ranks[rank].size(); ++i)
      actions.emplace_back(even.ranks[rank].start[i], &schedule.ranks[rank][i]);
  }
  std::stable_sort(actions.begin(), actions.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<parallel::Action> out;
  for (const auto& one : actions) out.push_back(*one.second);
  return out;
}

}  // namespace

bool splits_backward(const Layout& layout) {
  return layout.pipeline > 1 && layout.schedule != PipelineSchedule::k1F1B &&
         layout.schedule != PipelineSchedule::kGPipe;
}

std::string_view schedule_name(const Layout& layout) {
  switch (layout.schedule) {
    case PipelineSchedule::kGPipe:
      return "gpipe";
    case PipelineSchedule::k1F1B:
      return layout.virtual_stages > 1 ? "interleaved" : "1f1b";
    case PipelineSchedule::kZeroBubble:
      return layout.virtual_stages > 1 ? "interleaved_zb" : "zb_h1";
    case PipelineSchedule::kZeroBubbleV:
      return "zbv";
    case PipelineSchedule::kVHalf:
      return "v_half";
    case PipelineSchedule::kVMin:
      return "v_min";
    case PipelineSchedule::kDualPipeV:
      return "dualpipev";
  }
  return "1f1b";
}

std::shared_ptr<const WalkedSchedule> walk_schedule(const Layout& layout, int64_t most_of_rank) {
  using Key = std::tuple<std::string_view, int64_t, int64_t, int64_t>;
  static Cache<Key, WalkedSchedule> cache;
  const std::string_view name = schedule_name(layout);
  const bool grows = layout.schedule == PipelineSchedule::kGPipe;
  const int64_t most = grows ? int64_t{1} << 20 : most_of_rank * layout.pipeline;
  const int64_t m = std::clamp<int64_t>(static_cast<int64_t>(layout.micro_batches), 1, most);
  return cache.get({name, layout.pipeline, layout.virtual_stages, m}, [&] {
    WalkedSchedule out;
    const parallel::Schedule published =
        parallel::make_schedule({.name = std::string(name),
                                 .ranks = static_cast<int32_t>(layout.pipeline),
                                 .micro_batches = static_cast<int32_t>(m),
                                 .virtual_stages = static_cast<int32_t>(layout.virtual_stages)});
    out.schedule = as_run(published);
    out.live = parallel::live_counts(out.schedule);
    out.order = in_order(out.schedule);
    for (int32_t rank = 0; rank < out.schedule.rank_count(); ++rank)
      out.stages.push_back(out.schedule.stages_of(rank));
    // One more than the step needs to finish (config/pipeline.h).
    out.send_buffers = parallel::send_buffers_of(published) + 1;
    return out;
  });
}

double walked_seconds(const WalkedSchedule& walked, const parallel::Costs& costs) {
  using enum parallel::ActionKind;
  const parallel::Schedule& schedule = walked.schedule;
  const auto m = static_cast<size_t>(schedule.micro_batches);
  const auto stages = static_cast<size_t>(schedule.stages);
  // When results are there, by stage and micro-batch; W needs only what its rank has done before.
  std::vector<double> forward(stages * m), backward(stages * m), free(walked.stages.size());
  double last = 0;
  for (const parallel::Action& action : walked.order) {
    const auto stage = static_cast<size_t>(action.stage);
    const auto rank = static_cast<size_t>(schedule.rank_of_stage[stage]);
    const size_t at = stage * m + static_cast<size_t>(action.micro_batch);
    const parallel::StageCost& cost = costs.stages[stage];
    double start = free[rank], time = cost.weight_grad;
    const auto wait = [&](const std::vector<double>& ends, size_t other, size_t index) {
      const bool sent = schedule.rank_of_stage[other] != schedule.rank_of_stage[stage];
      start = std::max(start, ends[index] + (sent ? costs.message : 0));
    };
    if (action.kind == kForward) {
      if (stage > 0) wait(forward, stage - 1, at - m);
      time = cost.forward;
    } else if (action.kind != kWeightGrad) {
      if (stage + 1 < stages) wait(backward, stage + 1, at + m);
      time = cost.input_grad + (action.kind == kBackward ? cost.weight_grad : 0);
    }
    free[rank] = start + time;
    if (action.kind == kForward) forward[at] = free[rank];
    if (action.kind == kInputGrad || action.kind == kBackward) backward[at] = free[rank];
    last = std::max(last, free[rank]);
  }
  return last;
}

std::shared_ptr<const parallel::StageLayout> stages_of(const PartFlops& parts, int32_t stages) {
  static Cache<std::pair<PartFlops, int32_t>, parallel::StageLayout> cache;
  return cache.get({parts, stages}, [&] {
    parallel::PartCosts costs;
    costs.embedding = parts.embedding;
    costs.head = parts.head;
    costs.layers = parts.layers;
    return parallel::balanced_layout(costs, {.layers = static_cast<int32_t>(costs.layers.size())}, stages);
  });
}

}  // namespace strata::planning
