// An order in which the actions of all ranks can run, or why there is none. For this room.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/action_table.h"
#include "parallel/messages.h"

namespace strata::parallel {

struct RunOrder {
  std::vector<int32_t> sequence;  // indices; whatever an action needs stands before it
  struct Stuck {
    int32_t index = 0;      // the first action of its rank that never begins
    int32_t waits_for = 0;  // an action that never ends
  };
  std::vector<Stuck> stuck;  // by rank, those that do not come to their end
};

// Every rank runs its actions one after the other; each begins when what it needs has ended, and where
// `messages` are given, when there is room for those that it sends (messages.h): `send_buffers` a pair of
// ranks.
RunOrder run_order(const ActionTable& table, std::span<const Message> messages = {},
                   int32_t send_buffers = 0);

}  // namespace strata::parallel
