// Where the rows of a round go to and come from: what the host finds out from ids for ops/expert_parallel.h.
// Internal to expert_rounds.cpp.
#pragma once

#include <cstdint>
#include <span>

#include "ops/expert_parallel.h"

namespace strata::device {

// A rank's own tokens [begin, end) of a round: which go to which rank. Arrays lie in a kernel's scratch.
struct Departures {
  int32_t* tokens = nullptr;       // [R, room.rows]: by rank, those that go there
  int64_t* counts = nullptr;       // [R]
  int32_t* slot_counts = nullptr;  // [R]: slots of the token that is looked at
  // Of each token of the round where what comes back for it lies: rows in the order of the ranks.
  int32_t* back_begin = nullptr;  // [N + 1]
  int32_t* back = nullptr;        // [N · min(k, R)]
};
// The first token, from `begin` on, that does not fit between this rank and another any more.
int64_t first_overflow(const ops::ExpertParallelAttrs& attrs, const int32_t* ids, int64_t begin,
                       int64_t* rows, int64_t* slots);
// Throws InternalError on an id outside [-1, E).
void find_departures(const ops::ExpertParallelAttrs& attrs, const int32_t* ids, int64_t begin, int64_t end,
                     const Departures& out);

// What goes ahead of a row: 2 + 2 · hits numbers: its token, how many slots, and of each its expert there
// and its weight.
inline int64_t words_of_record(const ops::ExpertParallelAttrs& attrs) {
  return 2 + 2 * attrs.hits();
}
void write_records(const ops::ExpertParallelAttrs& attrs, const int32_t* ids, const float* weights,
                   const Departures& departures, int32_t* records);

// Rows that have come to a rank.
struct Arrivals {
  int32_t* places = nullptr;    // [R, room.rows]: by rank, in the order in which they came, which row each is
  int64_t* counts = nullptr;    // [R]
  int32_t* by_token = nullptr;  // [N + 1], for sorting
};
// Puts rows in the order of their tokens, then of their ranks, and lists their slots. `source` i32[M].
void order_arrivals(const ops::ExpertParallelAttrs& attrs, const int32_t* records, const Arrivals& arrivals,
                    int32_t* source, int32_t* offsets, int32_t* slot_ids, float* slot_weights);
// The same places and counts once more, of rows that were ordered before.
void find_arrivals(const ops::ExpertParallelAttrs& attrs, const int32_t* source, const Arrivals& arrivals);

// The weights' gradients of a row's slots, in one record of `hits` numbers; and back into [N, k].
void write_weight_grads(const ops::ExpertParallelAttrs& attrs, const int32_t* offsets,
                        const float* slot_grads, float* records);
void read_weight_grads(const ops::ExpertParallelAttrs& attrs, const int32_t* ids, int64_t begin, int64_t end,
                       const Departures& departures, const float* records, float* dweights);

// y[begin..end) = the sums of what came back for each token, in fp32; rows of `width` of `dtype`.
void add_returns(const Departures& departures, int64_t begin, int64_t end, int64_t width, DType dtype,
                 const std::byte* returned, std::byte* y);

}  // namespace strata::device
