#include "train/step_traces.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace strata::training {

StepTraces::StepTraces(const RunInputs& inputs, FileSystem& files, const Path& folder,
                       program::Executor& executor)
    : inputs_(inputs), files_(files), folder_(folder / "traces"), executor_(executor) {}

bool StepTraces::is_due(int64_t step) const {
  const auto& ranges = inputs_.config.profile.steps;
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const config::Range& r) { return r.first <= step && step <= r.last; });
}

void StepTraces::begin(int64_t step) {
  traces_ = is_due(step);
  executor_.observe(traces_ ? this : nullptr);
}

void StepTraces::end(int64_t step) {
  executor_.observe(nullptr);
  if (!traces_) return;
  const double start = events_.empty() ? 0 : events_.front().start_us;
  for (auto& event : events_) event.start_us -= start;
  const std::string threads[] = {"compute"};
  const std::string rank = inputs_.is_first() ? "" : fmt::format("-rank-{}", inputs_.ranks.world().rank());
  files_.create_directories(folder_);
  observe::write_trace(files_, folder_ / fmt::format("step-{:08}{}.json", step, rank), events_,
                       fmt::format("strata, step {}", step), threads);
  events_.clear();
}

void StepTraces::instruction(size_t program, const program::Action& action, size_t index, double begin,
                             double end) {
  const program::Program& held = executor_.program(program);
  const auto& node = held.node_of(held.list_of(action)[index]);
  std::string name(node.op->name);
  if (node.layer != graph::kNone) name = fmt::format("L{} {}", node.layer, name);
  events_.push_back({std::move(name), fmt::format("{} {}", program::str(action), graph::name_of(node.phase)),
                     begin * 1e6, (end - begin) * 1e6, 0});
}

}  // namespace strata::training
