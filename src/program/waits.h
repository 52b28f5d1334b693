// The instructions of other queues that each instruction must wait for.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace strata::program {

std::string_view name_of(graph::Queue queue);

struct ByteRange {
  int64_t begin = 0, end = 0;
};

// What an instruction touches, on the queue that carries it out.
struct Access {
  graph::Queue queue = graph::Queue::kCompute;
  std::vector<ByteRange> reads, writes;
  int32_t loop = graph::kNone;  // that the instruction is of
  // Ranks with other programs take part, other stages of a pipeline, so it never starts before its place: they
  // would start their collectives in another order.
  bool in_order = false;
};

struct Waits {
  // Instruction i waits for those of on[first[i]] to on[first[i + 1]].
  std::vector<uint32_t> first;
  std::vector<int32_t> on;
  // For each instruction, by queue: the last one on that queue that is surely done when the instruction
  // starts; −1: none. A queue works in order, so all before it are done too.
  std::vector<std::array<int32_t, graph::kQueues>> done;

  std::span<const int32_t> of(size_t i) const { return {on.data() + first[i], on.data() + first[i + 1]}; }
};

// With these waits every order that the queues allow has the same result as the order of the list: of two
// instructions that touch the same bytes, one of them writing, the first is done when the second starts. A
// wait that the order of a queue or other waits imply is omitted. All queues are idle when a pass of a loop
// begins and when it has ended, so that waits are found within a pass, and without it for all around it.
Waits find_waits(std::span<const Access> list);

}  // namespace strata::program
