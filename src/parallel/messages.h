// What ranks of a pipeline send each other in a step, and in which order: the program's rule, which follows
// from the schedule alone.
//
// - Where the next stage lies on another rank, F's output is a message to it; where the stage before does, so
// is
//   the gradient that I, B or FB makes of its input. Between two stages of one rank nothing is sent.
// - A send starts when its action ends, and the rank goes on. FB sends what went forward first.
// - From one rank to another messages arrive in the order in which they were sent, without names. So the
// receiver
//   starts its receives in that order too: before an action, all up to those that the action or a later one
//   needs in its turn (received_before), and waits for its own.
// - Where room is bounded to a number of messages under way from one rank to another, a rank waits before an
//   action that sends one more until the receiver has started to receive the oldest. send_buffers_of tells
//   the least room with which that never ends in a circle.
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
  // Places in the lists of the two ranks: of the action that makes it, of the one that reads it, and of the
  // one before which its receive starts, at the latest the reader.
  int32_t sent_after = 0, read_by = 0, received_before = 0;

  int64_t channel() const { return (int64_t{from_rank} << 32) | int64_t{to_rank}; }  // the two, as a key
};

// In the order of sending: by sender, and each sender's by place. InternalError where the schedule is not
// complete.
std::vector<Message> messages_of(const Schedule& schedule);

// Messages that rank `rank` holds at once at most, from the start of a receive to the end of its reader: the
// buffers that it needs for what it receives.
int32_t receive_buffers_of(const std::vector<Message>& messages, int32_t rank);

// Messages from one rank to another that must have room at once, on any pair of ranks, so that the step comes
// to its end. The schedule must be sound (check.h).
int32_t send_buffers_of(const Schedule& schedule);

}  // namespace strata::parallel
