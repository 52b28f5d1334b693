// What a kernel of ops/expert_parallel runs round by round: the body's kernels, and where all that they
// touch lies. Internal to expert_rounds.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/call_list.h"
#include "device/expert_routes.h"
#include "graph/graph.h"
#include "ops/expert_parallel/expert_parallel.h"

namespace strata::device {

enum class RoundsStep : uint8_t { kForward, kGradInput, kGradWeight };

// Places in the table of addresses of a round: scratch, then the values of the body.
inline constexpr Base kBodyScratch{1};
constexpr Base base_of(graph::ValueId value) {
  return static_cast<Base>(value + 2);
}

// A node of the body.
struct BodyCall {
  BoundKernel kernel;
  std::vector<Location> operands;
};

// Where a value of the body lies.
struct BodyValue {
  int first_round = -1;   // operand of the node; -1: in scratch
  int later_rounds = -1;  // the same
  int64_t scratch = -1;
};

// A hop, and where in scratch its arrays lie.
struct HopPlan {
  Hop hop;
  int64_t entry_slots = 0;  // of an entry that departs, at most
  int64_t entries_at = 0, counts_at = 0, back_begin_at = 0, back_end_at = 0, back_at = 0;
  int64_t sent_at = 0, arrived_at = 0, arrived_counts_at = 0;  // records
  int64_t grads_at = 0, returned_grads_at = 0;                 // of weights: of what departed; of rows
};

struct RoundsPlan {
  RoundsStep step = RoundsStep::kForward;
  ops::ExpertParallelAttrs attrs;
  std::vector<BodyCall> forward, input_grad, weight_grad, more_weight_grad;  // the last adds to gradients
  std::vector<BodyValue> where;                                              // by value of the body
  // Operands of the node; -1: it has none such.
  int x = -1, ids = -1, weights = -1, dy = -1, end = -1;
  int y = -1, dx = -1, dweights = -1;
  int scratch_operand = 0;
  std::vector<HopPlan> hops;  // one, or to nodes and inside them
  int64_t own_records_at = 0, own_count_at = 0, places_at = 0, by_token_at = 0, ends_at = 0, room_at = 0;
  int64_t between_at = 0;    // rows between two hops
  int64_t row_grads_at = 0;  // of weights
  int64_t kernel_scratch_at = 0;
  int64_t row_bytes = 0;
  int64_t scratch_bytes = 0;
};

// Binds the body's kernels from the table of one kind of device.
RoundsPlan plan_rounds(const BindRequest& request, std::span<const Binding> table);

}  // namespace strata::device
