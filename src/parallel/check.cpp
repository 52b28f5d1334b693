#include "parallel/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "parallel/action_table.h"
#include "parallel/run_order.h"

namespace strata::parallel {
namespace {

using Faults = std::vector<std::string>;

Faults faults_of_form(const Schedule& schedule) {
  const int32_t ranks = schedule.rank_count();
  if (schedule.stages < 1 || schedule.micro_batches < 1 || ranks < 1) {
    return {fmt::format("found {} stages, {} micro-batches and {} ranks: there must be at least one of each",
                        schedule.stages, schedule.micro_batches, ranks)};
  }
  if (int64_t{schedule.stages} * schedule.micro_batches > kMostCells) {
    return {fmt::format("found {} stages and {} micro-batches: their product may be {} at most",
                        schedule.stages, schedule.micro_batches, kMostCells)};
  }
  if (std::ssize(schedule.rank_of_stage) != schedule.stages) {
    return {fmt::format("found {} stages, and ranks for {}", schedule.stages, schedule.rank_of_stage.size())};
  }
  Faults faults;
  for (int32_t stage = 0; stage < schedule.stages; ++stage) {
    const int32_t rank = schedule.rank_of_stage[static_cast<size_t>(stage)];
    if (rank < 0 || rank >= ranks)
      faults.push_back(fmt::format("stage {} lies on rank {} of {}", stage, rank, ranks));
  }
  size_t actions = 0;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const size_t of_rank = schedule.ranks[static_cast<size_t>(rank)].size();
    if (of_rank == 0) faults.push_back(fmt::format("rank {} has nothing to do", rank));
    actions += of_rank;
  }
  if (actions > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    faults.push_back(fmt::format("found {} actions, more than any schedule has", actions));
  return faults;
}

void find_missing(const ActionTable& table, Faults& faults) {
  const Schedule& schedule = table.schedule();
  for (int32_t stage = 0; stage < schedule.stages; ++stage) {
    const int32_t rank = schedule.rank_of_stage[static_cast<size_t>(stage)];
    for (int32_t micro_batch = 0; micro_batch < schedule.micro_batches; ++micro_batch) {
      const auto miss = [&](const char* what) {
        faults.push_back(fmt::format("rank {}: {}{}@{} is missing", rank, what, micro_batch, stage));
      };
      const bool has_input_grad = table.input_grad(micro_batch, stage) != ActionTable::kNone;
      const bool has_weight_grad = table.weight_grad(micro_batch, stage) != ActionTable::kNone;
      if (table.forward(micro_batch, stage) == ActionTable::kNone) miss("F");
      if (!has_input_grad) miss(has_weight_grad ? "I" : "I or B");
      if (has_input_grad && !has_weight_grad) miss("W");
    }
  }
}

void find_disorder(const ActionTable& table, Faults& faults) {
  const Schedule& schedule = table.schedule();
  for (int32_t stage = 0; stage < schedule.stages; ++stage) {
    for (int32_t micro_batch = 0; micro_batch < schedule.micro_batches; ++micro_batch) {
      const int32_t forward = table.forward(micro_batch, stage);
      const int32_t input_grad = table.input_grad(micro_batch, stage);
      const int32_t weight_grad = table.weight_grad(micro_batch, stage);
      if (input_grad <= forward) {
        faults.push_back(
            fmt::format("{} needs F{}@{}, which is {}", table.where(input_grad), micro_batch, stage,
                        input_grad == forward ? "part of it" : "behind it: " + table.where(forward)));
      }
      // One and the same where it is B.
      if (weight_grad < input_grad) {
        faults.push_back(fmt::format("{} needs I{}@{}, which is behind it: {}", table.where(weight_grad),
                                     micro_batch, stage, table.where(input_grad)));
      }
    }
  }
}

// Who waits for whom, from the first rank that is stuck round to where the circle closes.
void find_deadlock(const ActionTable& table, Faults& faults) {
  const RunOrder order = run_order(table);
  if (order.stuck.empty()) return;
  std::vector<const RunOrder::Stuck*> of_rank(static_cast<size_t>(table.schedule().rank_count()), nullptr);
  for (const RunOrder::Stuck& stuck : order.stuck)
    of_rank[static_cast<size_t>(table.rank_of(stuck.index))] = &stuck;
  std::vector<char> told(of_rank.size(), 0);
  std::string circle;
  auto rank = static_cast<size_t>(table.rank_of(order.stuck.front().index));
  while (!told[rank]) {
    told[rank] = 1;
    const RunOrder::Stuck& stuck = *of_rank[rank];
    circle += fmt::format("{}{} waits for {}", circle.empty() ? "" : "; ", table.where(stuck.index),
                          table.where(stuck.waits_for));
    rank = static_cast<size_t>(table.rank_of(stuck.waits_for));
  }
  faults.push_back("deadlock: " + circle);
}

}  // namespace

std::vector<std::string> errors_of(const Schedule& schedule) {
  Faults faults = faults_of_form(schedule);
  if (!faults.empty()) return faults;
  const ActionTable table(schedule, [&](std::string fault) { faults.push_back(std::move(fault)); });
  find_missing(table, faults);
  if (!faults.empty()) return faults;
  find_disorder(table, faults);
  if (!faults.empty()) return faults;
  find_deadlock(table, faults);
  return faults;
}

void require_sound(const Schedule& schedule, const std::string& origin) {
  const Faults faults = errors_of(schedule);
  if (faults.empty()) return;
  constexpr size_t kTold = 5;
  std::string text;
  for (size_t i = 0; i < std::min(kTold, faults.size()); ++i) text += "\n  " + faults[i];
  if (faults.size() > kTold) text += fmt::format("\n  and {} more", faults.size() - kTold);
  throw ConfigError("[{}] schedule {} ({}) cannot run:{}", origin, schedule.name, sizes_text(schedule), text);
}

}  // namespace strata::parallel
