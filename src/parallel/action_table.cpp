#include "parallel/action_table.h"

#include <fmt/format.h>

#include "base/error.h"

namespace strata::parallel {

using enum ActionKind;

ActionTable::ActionTable(const Schedule& schedule)
    : ActionTable(schedule, [&](const std::string& problem) {
        throw InternalError("[parallel] schedule {} was used unchecked: {}", schedule.name, problem);
      }) {}

ActionTable::ActionTable(const Schedule& schedule, const OnError& on_error) : schedule_(schedule) {
  first_.push_back(0);
  for (int32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    const std::vector<Action>& actions = schedule.ranks[static_cast<size_t>(rank)];
    first_.push_back(first_.back() + static_cast<int32_t>(actions.size()));
    actions_.insert(actions_.end(), actions.begin(), actions.end());
    rank_of_.insert(rank_of_.end(), actions.size(), rank);
  }
  const size_t cells = static_cast<size_t>(schedule.stages) * static_cast<size_t>(schedule.micro_batches);
  for (auto* table : {&forward_, &input_grad_, &weight_grad_}) table->assign(cells, kNone);
  for (int32_t index = 0; index < size(); ++index) {
    const Action& a = action(index);
    switch (a.kind) {
      case kForward:
        enter(index, "F", a.micro_batch, a.stage, on_error, &forward_);
        break;
      case kInputGrad:
        enter(index, "I", a.micro_batch, a.stage, on_error, &input_grad_);
        break;
      case kWeightGrad:
        enter(index, "W", a.micro_batch, a.stage, on_error, &weight_grad_);
        break;
      case kBackward:
        enter(index, "B", a.micro_batch, a.stage, on_error, &input_grad_, &weight_grad_);
        break;
      case kForwardBackward:
        enter(index, "F", a.micro_batch, a.stage, on_error, &forward_);
        enter(index, "B", a.backward_micro_batch, a.backward_stage, on_error, &input_grad_, &weight_grad_);
        break;
    }
  }
}

void ActionTable::enter(int32_t index, const char* letter, int32_t micro_batch, int32_t stage,
                        const OnError& on_error, std::vector<int32_t>* table, std::vector<int32_t>* second) {
  if (micro_batch < 0 || micro_batch >= schedule_.micro_batches || stage < 0 || stage >= schedule_.stages) {
    on_error(fmt::format(
        "{}: {}{}@{} is out of range: the schedule has micro-batches 0 to {} and stages 0 to {}",
        where(index), letter, micro_batch, stage, schedule_.micro_batches - 1, schedule_.stages - 1));
    return;
  }
  const int32_t holder = schedule_.rank_of_stage[static_cast<size_t>(stage)];
  if (holder != rank_of(index)) {
    on_error(fmt::format("{}: stage {} is on rank {}", where(index), stage, holder));
    return;
  }
  for (auto* each : {table, second}) {
    if (!each) continue;
    int32_t& place = (*each)[cell(micro_batch, stage)];
    if (place != kNone) {
      on_error(fmt::format("{}: {}{}@{} was already done by {}", where(index), letter, micro_batch, stage,
                           where(place)));
      return;
    }
    place = index;
  }
}

std::string ActionTable::where(int32_t index) const {
  const int32_t rank = rank_of(index);
  return fmt::format("rank {}, action {} ({})", rank, index - first_of(rank), str(action(index)));
}

Needs needs_of(const ActionTable& table, int32_t index) {
  Needs needs;
  const Action& a = table.action(index);
  const auto forward = [&] {
    if (a.stage > 0) needs.add(table.forward(a.micro_batch, a.stage - 1));
  };
  const auto backward = [&](int32_t micro_batch, int32_t stage) {
    needs.add(table.forward(micro_batch, stage));
    if (stage + 1 < table.schedule().stages) needs.add(table.input_grad(micro_batch, stage + 1));
  };
  switch (a.kind) {
    case kForward:
      forward();
      break;
    case kInputGrad:
    case kBackward:
      backward(a.micro_batch, a.stage);
      break;
    case kWeightGrad:
      needs.add(table.input_grad(a.micro_batch, a.stage));
      break;
    case kForwardBackward:
      forward();
      backward(a.backward_micro_batch, a.backward_stage);
      break;
  }
  return needs;
}

}  // namespace strata::parallel
