#include "parallel/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "parallel/action_table.h"
#include "parallel/run_order.h"

namespace strata::parallel {
namespace {

using Errors = std::vector<std::string>;

Errors errors_of_form(const Schedule& schedule) {
  const int32_t ranks = schedule.rank_count();
  if (schedule.stages < 1 || schedule.micro_batches < 1 || ranks < 1) {
    return {fmt::format("found {} stages, {} micro-batches and {} ranks: expected at least one of each",
                        schedule.stages, schedule.micro_batches, ranks)};
  }
  if (int64_t{schedule.stages} * schedule.micro_batches > kMostCells) {
    return {fmt::format("found {} stages x {} micro-batches: expected at most {} in total", schedule.stages,
                        schedule.micro_batches, kMostCells)};
  }
  if (std::ssize(schedule.rank_of_stage) != schedule.stages) {
    return {fmt::format("found {} stages, but ranks for {}", schedule.stages, schedule.rank_of_stage.size())};
  }
  Errors errors;
  for (int32_t stage = 0; stage < schedule.stages; ++stage) {
    const int32_t rank = schedule.rank_of_stage[static_cast<size_t>(stage)];
    if (rank < 0 || rank >= ranks)
      errors.push_back(fmt::format("stage {} is on rank {}: expected a rank below {}", stage, rank, ranks));
  }
  size_t actions = 0;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const size_t of_rank = schedule.ranks[static_cast<size_t>(rank)].size();
    if (of_rank == 0) errors.push_back(fmt::format("rank {} has no actions", rank));
    actions += of_rank;
  }
  if (actions > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    errors.push_back(fmt::format("found {} actions: expected at most 2^31 - 1", actions));
  return errors;
}

void find_missing(const ActionTable& table, Errors& errors) {
  const Schedule& schedule = table.schedule();
  for (int32_t stage = 0; stage < schedule.stages; ++stage) {
    const int32_t rank = schedule.rank_of_stage[static_cast<size_t>(stage)];
    for (int32_t micro_batch = 0; micro_batch < schedule.micro_batches; ++micro_batch) {
      const auto miss = [&](const char* what) {
        errors.push_back(fmt::format("rank {}: {}{}@{} is missing", rank, what, micro_batch, stage));
      };
      const bool has_input_grad = table.input_grad(micro_batch, stage) != ActionTable::kNone;
      const bool has_weight_grad = table.weight_grad(micro_batch, stage) != ActionTable::kNone;
      if (table.forward(micro_batch, stage) == ActionTable::kNone) miss("F");
      if (!has_input_grad) miss(has_weight_grad ? "I" : "I or B");
      if (has_input_grad && !has_weight_grad) miss("W");
    }
  }
}

void find_disorder(const ActionTable& table, Errors& errors) {
  const Schedule& schedule = table.schedule();
  for (int32_t stage = 0; stage < schedule.stages; ++stage) {
    for (int32_t micro_batch = 0; micro_batch < schedule.micro_batches; ++micro_batch) {
      const int32_t forward = table.forward(micro_batch, stage);
      const int32_t input_grad = table.input_grad(micro_batch, stage);
      const int32_t weight_grad = table.weight_grad(micro_batch, stage);
      if (input_grad <= forward) {
        errors.push_back(
            fmt::format("{} needs F{}@{}, which is {}", table.where(input_grad), micro_batch, stage,
                        input_grad == forward ? "part of it" : "later: " + table.where(forward)));
      }
      // Equal if the action is B.
      if (weight_grad < input_grad) {
        errors.push_back(fmt::format("{} needs I{}@{}, which is later: {}", table.where(weight_grad),
                                     micro_batch, stage, table.where(input_grad)));
      }
    }
  }
}

// Reports the cycle of waits that begins at the first rank that is stuck.
void find_deadlock(const ActionTable& table, Errors& errors) {
  const RunOrder order = run_order(table);
  if (order.stuck.empty()) return;
  std::vector<const RunOrder::Stuck*> of_rank(static_cast<size_t>(table.schedule().rank_count()), nullptr);
  for (const RunOrder::Stuck& stuck : order.stuck)
    of_rank[static_cast<size_t>(table.rank_of(stuck.index))] = &stuck;
  std::vector<char> visited(of_rank.size(), 0);
  std::string cycle;
  auto rank = static_cast<size_t>(table.rank_of(order.stuck.front().index));
  while (!visited[rank]) {
    visited[rank] = 1;
    const RunOrder::Stuck& stuck = *of_rank[rank];
    cycle += fmt::format("{}{} waits for {}", cycle.empty() ? "" : "; ", table.where(stuck.index),
                         table.where(stuck.waits_for));
    rank = static_cast<size_t>(table.rank_of(stuck.waits_for));
  }
  errors.push_back("deadlock: " + cycle);
}

}  // namespace

std::vector<std::string> errors_of(const Schedule& schedule) {
  Errors errors = errors_of_form(schedule);
  if (!errors.empty()) return errors;
  const ActionTable table(schedule, [&](std::string error) { errors.push_back(std::move(error)); });
  find_missing(table, errors);
  if (!errors.empty()) return errors;
  find_disorder(table, errors);
  if (!errors.empty()) return errors;
  find_deadlock(table, errors);
  return errors;
}

void require_sound(const Schedule& schedule, const std::string& origin) {
  const Errors errors = errors_of(schedule);
  if (errors.empty()) return;
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, errors.size()); ++i) text += "\n  " + errors[i];
  if (errors.size() > kShown) text += fmt::format("\n  and {} more", errors.size() - kShown);
  throw ConfigError("[{}] schedule {} ({}) cannot run:{}", origin, schedule.name, sizes_text(schedule), text);
}

}  // namespace strata::parallel
