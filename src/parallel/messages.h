// Messages between the ranks of a pipeline in one step, and their order: both follow from the schedule only.
//
// - If the next stage is on another rank, F's output is a message to it; if the previous stage is, so is the
//   input gradient that I, B or FB computes. Two stages of one rank exchange no messages.
// - A send starts when its action ends, and the rank continues. FB sends the forward output first.
// - Messages from one rank to another arrive in the order in which they were sent, without names. So the
//   receiver starts its receives in that order: before an action it starts all receives up to those that the
//   action or a later one needs (received_before), and waits for its own.
// - If the number of messages in flight from one rank to another is limited, a rank waits before an action
//   that would exceed it until the receiver has started to receive the oldest. send_buffers_of returns the
//   smallest limit without a deadlock.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/schedule.h"

namespace strata::parallel {

struct Message {
  enum class Kind : uint8_t { kActivation, kGradient };
  Kind kind = Kind::kActivation;
  int32_t micro_batch = 0;
  int32_t from_stage = 0, to_stage = 0;
  int32_t from_rank = 0, to_rank = 0;
  // Indices in the lists of the two ranks: of the action that makes the message, of its reader, and of the
  // action before which its receive starts (the reader at the latest).
  int32_t sent_after = 0, read_by = 0, received_before = 0;

  int64_t channel() const { return (int64_t{from_rank} << 32) | int64_t{to_rank}; }  // both ranks, as a key
};

// In the order of sending: by sender, then by index. InternalError if the schedule is incomplete.
std::vector<Message> messages_of(const Schedule& schedule);

// The largest number of messages that rank `rank` holds at the same time, from the start of a receive to the
// end of its reader: its number of receive buffers.
int32_t receive_buffers_of(const std::vector<Message>& messages, int32_t rank);

// The smallest number of send buffers, for any pair of ranks, with which the step ends. The schedule must be
// sound (check.h).
int32_t send_buffers_of(const Schedule& schedule);

}  // namespace strata::parallel
