// Finds an order in which the actions of all ranks can run, or the reason that none exists. Internal to this
// module.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/action_table.h"
#include "parallel/messages.h"

namespace strata::parallel {

struct RunOrder {
  std::vector<int32_t> sequence;  // indices; an action follows everything that it needs
  struct Stuck {
    int32_t index = 0;      // the first action of its rank that never begins
    int32_t waits_for = 0;  // an action that never ends
  };
  std::vector<Stuck> stuck;  // by rank; only ranks that do not finish
};

// Every rank runs its actions in sequence. Each begins when the actions that it needs have ended and, if
// `messages` are given, when there are buffers for those that it sends: `send_buffers` per pair of ranks
// (messages.h).
RunOrder run_order(const ActionTable& table, std::span<const Message> messages = {},
                   int32_t send_buffers = 0);

}  // namespace strata::parallel
