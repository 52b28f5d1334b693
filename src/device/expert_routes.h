// Routes of the rows of a pass, computed from ids on the host; used only by expert_dispatch.cpp. Arrays are
// those of a way (ops/expert_dispatch/way.h) or are in a kernel's scratch.
#pragma once

#include <cstdint>
#include <span>

#include "comm/communicator.h"
#include "ops/expert_dispatch/way.h"

namespace strata::device {

using ops::DispatchAttrs;
using ops::Hop;

// Records, in blocks of which only the first ones are there.
struct Entries {
  const int32_t* records = nullptr;
  int64_t words = 0;
  int64_t blocks = 1, block = 0;    // how many, and records of each at most
  const int32_t* counts = nullptr;  // by block
  int64_t first = 0;                // of each block that is there
  int64_t all() const { return blocks * block; }
  const int32_t* record(int64_t i) const { return records + i * words; }
  template <typename Visit>
  void each(const Visit& visit) const {
    for (int64_t b = 0; b < blocks; ++b) {
      for (int64_t i = 0; i < counts[b]; ++i) visit(b * block + first + i);
    }
  }
};

// The arrays of a HopWay that plan_dispatch fills, or that others read.
template <typename T>
struct SendListOf {
  T *entries = nullptr, *counts = nullptr, *back_begin = nullptr, *back_end = nullptr, *back = nullptr;
};
using SendList = SendListOf<const int32_t>;

// The records of a rank's own tokens [begin, end), record t of token t. Throws InternalError on an id outside
// [-1, E). Without weights those words are 0.
void write_own_records(const DispatchAttrs& attrs, int32_t rank, const int32_t* ids, const float* weights,
                       int64_t begin, int64_t end, int32_t* records);
// The first token, from `begin` on, that no longer fits between this rank and another. `rows`
// and the array after it, [R] each, are counters.
int64_t first_overflow(const DispatchAttrs& attrs, const int32_t* ids, int64_t begin, int64_t* rows,
                       int64_t* slots);
// `records` [peers · rows]: the record sent ahead of each row.
void depart(const Hop& hop, const Entries& entries, const SendListOf<int32_t>& out, int32_t* records);

// The row of each entry that has arrived. Rows are ordered by token, then by source rank; blocks hold ranks
// in ascending order of their nodes. `by_token` [tokens + 1]: counters.
void find_places(const Entries& arrived, int64_t tokens, int64_t node_ranks, int32_t* by_token,
                 int32_t* places);
// The token–expert pairs of these rows: offsets i32[M + 1], ids and weights [S].
void list_slots(const DispatchAttrs& attrs, const Entries& arrived, const int32_t* places, int32_t* offsets,
                int32_t* ids, float* weights);

// The gradients of rows' weights: for row m those of its token–expert pairs, in `hits` numbers.
void write_weight_grads(const DispatchAttrs& attrs, const int32_t* offsets, const float* slot_grads,
                        float* grads);
// Like write_weight_grads(), on the sending side: for entry e the gradients of its token–expert pairs, in
// `out_hits` numbers, from those of the rows that came back for it.
void return_weight_grads(const Hop& hop, const Entries& entries, const SendList& sends, const float* returned,
                         float* out, int64_t out_hits);
// From those of a rank's own tokens to [N, k].
void place_weight_grads(const DispatchAttrs& attrs, const int32_t* ids, int64_t begin, int64_t end,
                        const float* grads, float* dweights);

// out[e] = the sum, in fp32, of the rows that came back for entry e; rows of `width` of `dtype`, by peer.
void add_returns(const Hop& hop, const Entries& entries, const SendList& sends, int64_t width, DType dtype,
                 std::span<const comm::RowSource> returned, std::byte* out);

}  // namespace strata::device
