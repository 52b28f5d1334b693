#include "parallel/messages.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "parallel/action_table.h"
#include "parallel/run_order.h"

namespace strata::parallel {

using enum ActionKind;

std::vector<Message> messages_of(const Schedule& schedule) {
  const ActionTable table(schedule);
  std::vector<Message> messages;
  const auto send = [&](int32_t index, Message::Kind kind, int32_t micro_batch, int32_t stage) {
    const bool is_forward = kind == Message::Kind::kActivation;
    const int32_t to_stage = is_forward ? stage + 1 : stage - 1;
    if (to_stage < 0 || to_stage >= schedule.stages) return;
    const int32_t to_rank = schedule.rank_of_stage[static_cast<size_t>(to_stage)];
    const int32_t from_rank = table.rank_of(index);
    if (to_rank == from_rank) return;
    const int32_t reader =
        is_forward ? table.forward(micro_batch, to_stage) : table.input_grad(micro_batch, to_stage);
    const int32_t read_by = reader - table.first_of(to_rank);
    messages.push_back({kind, micro_batch, stage, to_stage, from_rank, to_rank,
                        index - table.first_of(from_rank), read_by, read_by});
  };
  for (int32_t index = 0; index < table.size(); ++index) {
    const Action& a = table.action(index);
    const bool is_pair = a.kind == kForwardBackward;
    if (a.kind == kForward || is_pair) send(index, Message::Kind::kActivation, a.micro_batch, a.stage);
    if (a.kind == kInputGrad || a.kind == kBackward)
      send(index, Message::Kind::kGradient, a.micro_batch, a.stage);
    if (is_pair) send(index, Message::Kind::kGradient, a.backward_micro_batch, a.backward_stage);
  }
  // A receive starts no later than the receives after it.
  std::unordered_map<int64_t, int32_t> earliest;
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    int32_t& start = earliest.try_emplace(message->channel(), message->read_by).first->second;
    start = std::min(start, message->read_by);
    message->received_before = start;
  }
  return messages;
}

int32_t receive_buffers_of(const std::vector<Message>& messages, int32_t rank) {
  std::vector<int32_t>
      change;  // by the rank's action: receives that start before it, less messages read before it
  for (const Message& message : messages) {
    if (message.to_rank != rank) continue;
    if (change.size() < static_cast<size_t>(message.read_by) + 2)
      change.resize(static_cast<size_t>(message.read_by) + 2, 0);
    ++change[static_cast<size_t>(message.received_before)];
    --change[static_cast<size_t>(message.read_by) + 1];
  }
  int32_t held = 0, most = 0;
  for (const int32_t each : change) most = std::max(most, held += each);
  return most;
}

int32_t send_buffers_of(const Schedule& schedule) {
  const ActionTable table(schedule);
  const auto messages = messages_of(schedule);
  const auto suffice = [&](int32_t buffers) { return run_order(table, messages, buffers).stuck.empty(); };
  // More buffers mean fewer waits: find the smallest number that suffices, by doubling and then bisection.
  int32_t least = 1, too_few = 0;
  while (!suffice(least)) {
    STRATA_CHECK(least < table.size(), "schedule {} does not come to its end", schedule.name);
    too_few = least;
    least *= 2;
  }
  while (least - too_few > 1) {
    const int32_t between = too_few + (least - too_few) / 2;
    (suffice(between) ? least : too_few) = between;
  }
  return least;
}

}  // namespace strata::parallel
