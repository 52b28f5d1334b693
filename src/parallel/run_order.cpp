#include "parallel/run_order.h"

#include <algorithm>
#include <array>
#include <deque>
#include <unordered_map>

namespace strata::parallel {
namespace {

constexpr int32_t kNone = ActionTable::kNone;

// By action: the actions that must have ended before a buffer is free for the messages that it sends; at most
// two, for FB.
std::vector<std::array<int32_t, 2>> buffer_waits_of(const ActionTable& table,
                                                    std::span<const Message> messages, int32_t send_buffers) {
  std::vector<std::array<int32_t, 2>> waits(static_cast<size_t>(table.size()), {kNone, kNone});
  std::unordered_map<int64_t, std::deque<int32_t>>
      in_flight;  // by channel: the actions after which receives start
  for (const Message& message : messages) {
    auto& receives = in_flight[message.channel()];
    if (std::ssize(receives) == send_buffers) {
      const int32_t sender = table.first_of(message.from_rank) + message.sent_after;
      auto& wait = waits[static_cast<size_t>(sender)];
      wait[wait[0] == kNone ? 0 : 1] = receives.front();
      receives.pop_front();
    }
    // A receive starts when the previous action has ended, or immediately if there is none.
    receives.push_back(
        message.received_before == 0 ? kNone : table.first_of(message.to_rank) + message.received_before - 1);
  }
  return waits;
}

}  // namespace

RunOrder run_order(const ActionTable& table, std::span<const Message> messages, int32_t send_buffers) {
  RunOrder order;
  const int32_t ranks = table.schedule().rank_count(), size = table.size();
  order.sequence.reserve(static_cast<size_t>(size));
  const auto buffer_waits = messages.empty() ? std::vector<std::array<int32_t, 2>>()
                                             : buffer_waits_of(table, messages, send_buffers);
  std::vector<char> ended(static_cast<size_t>(size), 0);
  const auto has_ended = [&](int32_t index) { return index == kNone || ended[static_cast<size_t>(index)]; };
  // The action that a rank's next action waits for; .waits_for is kNone if it can begin.
  const auto wait_of = [&](int32_t index) -> RunOrder::Stuck {
    const Needs needs = needs_of(table, index);
    for (int32_t i = 0; i < needs.count; ++i) {
      if (!has_ended(needs.of[i])) return {index, needs.of[i]};
    }
    if (!buffer_waits.empty()) {
      for (const int32_t other : buffer_waits[static_cast<size_t>(index)]) {
        if (!has_ended(other)) return {index, other};
      }
    }
    return {index, kNone};
  };
  // Linked lists of the ranks that wait for the same action; a rank waits for one action at a time.
  std::vector<int32_t> first_waiting(static_cast<size_t>(size), kNone),
      next_waiting(static_cast<size_t>(ranks));
  std::vector<int32_t> at(static_cast<size_t>(ranks));  // index of each rank's next action
  std::vector<int32_t> can_go;
  for (int32_t rank = ranks; rank-- > 0;) {
    at[static_cast<size_t>(rank)] = table.first_of(rank);
    can_go.push_back(rank);
  }
  while (!can_go.empty()) {
    const int32_t rank = can_go.back();
    can_go.pop_back();
    for (int32_t& index = at[static_cast<size_t>(rank)]; index < table.first_of(rank + 1); ++index) {
      if (const auto wait = wait_of(index); wait.waits_for != kNone) {
        int32_t& first = first_waiting[static_cast<size_t>(wait.waits_for)];
        next_waiting[static_cast<size_t>(rank)] = first;
        first = rank;
        break;
      }
      ended[static_cast<size_t>(index)] = 1;
      order.sequence.push_back(index);
      for (int32_t waiting = first_waiting[static_cast<size_t>(index)]; waiting != kNone;
           waiting = next_waiting[static_cast<size_t>(waiting)]) {
        can_go.push_back(waiting);
      }
    }
  }
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const int32_t index = at[static_cast<size_t>(rank)];
    if (index < table.first_of(rank + 1)) order.stuck.push_back(wait_of(index));
  }
  return order;
}

}  // namespace strata::parallel
