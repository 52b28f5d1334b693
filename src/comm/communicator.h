// Collectives of a group of ranks.
//
// A collective is prepared once from its description (prepare) and started as often as needed: start() takes
// the buffers' addresses and returns immediately, and wait() returns when this rank's part is done: its data
// has arrived, and no peer reads its send buffers any more. Between the two neither buffer may be touched,
// except for reading sent data. All members of a group start the same collectives in the same order, and they
// finish in that order. Up to 64 may be in flight on a group; starting one more may wait for the oldest.
//
// Sums are made in an order that depends on the group and the topology only, in fp32 (f64 and integers in
// their own type), so that both engines yield the same bits, for any chunk size and kind of progress:
//   flat          ((x0 + x1) + x2) + …, in the order of the members
//   hierarchical  the same within each fast domain, then over the domains in the order of their first members
// Transferred values are rounded to the wire type (bf16 and f16 tensors: their own type): addends, including
// the summing member's own; the sums of domains if there are several; the sums of an all-reduce, whose bits
// are the same on all members. Subnormal terms and sums count as zero.
//
// Errors: WorldError when a rank fails, dies or stops answering, on all ranks, with the first failing rank's
// message; InternalError if members disagree. Destroy a communicator before the buffers of its collectives.
// If some are still in flight (because an error unwinds), its destructor ensures that no rank of this process
// accesses the buffers any more, and ends the job.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "tensor/dtype.h"

namespace strata::comm {

// `count` runs of `bytes` bytes each, the first at `offset`, with starts `stride` bytes apart. Whole, aligned
// elements. Received runs do not overlap.
struct Run {
  int64_t offset = 0, bytes = 0;
  int64_t count = 1, stride = 0;
  int64_t total() const { return bytes * count; }
  bool operator==(const Run&) const = default;
};
using Runs = std::vector<Run>;

enum class Collective : uint8_t {
  kExchange,       // each member sends runs to every other: all-gather, all-to-all, scatter
  kReduceScatter,  // runs sent to a member are summed there
  kAllReduce,      // whole buffers are summed on all members
  kBroadcast,      // from member `root`
  kRows,           // only for exchange_rows
};

// One tensor of a collective, as this member sees it.
struct Transfer {
  DType dtype = DType::kF32;
  // kExchange, kReduceScatter: by receiving member (including this one), runs of the send buffer. One entry:
  // the same for all.
  std::vector<Runs> send = {};
  // kExchange: by sending member, runs of the receive buffer. kReduceScatter: one entry, the runs of the sum.
  // The same bytes as were sent, in order; the two sides may split them into runs differently.
  std::vector<Runs> receive = {};
  // Size of the receive buffer; of both in kAllReduce and kBroadcast. Bytes that no run of kExchange or
  // kReduceScatter covers (the padding of uneven shards) are zeroed, unless the collective accumulates into
  // the buffer.
  int64_t bytes = 0;
};

struct Operation {
  Collective collective = Collective::kAllReduce;
  std::vector<Transfer> transfers;  // in one call, for fewer messages
  int root = 0;                     // kBroadcast
  // Wire type of f32 sums, kF32 or kBF16: addends are rounded to it (also the summing member's own) and
  // summed in fp32; the sums of an all-reduce are rounded again when they are returned.
  DType payload = DType::kF32;
  std::string label = {};  // for the flight recorder: "all-reduce of layer 3's gradients"
};

// The addresses of one transfer for one start.
struct Buffers {
  const void* send = nullptr;
  // May equal `send` in kAllReduce and kBroadcast, and in kExchange if the member's runs to itself are the
  // same and received data does not overlap sent data.
  void* receive = nullptr;
  // Adds sums to the buffer's contents (kReduceScatter, kAllReduce): on all members, and not in place.
  bool adds = false;
};

// An Operation, prepared for the engine.
class Prepared {
 public:
  virtual ~Prepared() = default;
};

// Rows of a buffer: the `count` listed ones, or `count` consecutive ones from `first`.
struct RowSet {
  const int32_t* rows = nullptr;
  int64_t first = 0, count = 0;
  int64_t row(int64_t i) const { return rows != nullptr ? rows[i] : first + i; }
};

// The readable rows from a member.
struct RowSource {
  const std::byte* base = nullptr;
  RowSet rows;
  const std::byte* row(int64_t i, int64_t row_bytes) const { return base + rows.row(i) * row_bytes; }
};

// Rows that members select for each other at run time, including for themselves.
struct RowExchange {
  const void* send = nullptr;
  void* receive = nullptr;
  int64_t row_bytes = 0;
  std::span<const RowSet> sends;  // by member
  // By member, the place of its rows. `count` is the capacity before, and the received number afterwards.
  // Members' rows do not overlap; rows that no member sends are unchanged.
  std::span<RowSet> receives;
  // If set, called with the rows of all members, in order, instead of copying them: `receive` and the
  // addresses in `receives` are unused, but their counts are set.
  const FunctionRef<void(std::span<const RowSource>)>* take = nullptr;
};

// A started collective of one communicator.
struct Ticket {
  uint64_t number = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // in the group
  virtual int size() const = 0;

  virtual std::unique_ptr<Prepared> prepare(Operation operation) = 0;
  // The most memory that the engine uses for the collectives prepared so far, excluding the caller's buffers.
  virtual int64_t staging_bytes() const = 0;
  virtual Ticket start(Prepared& prepared, std::span<const Buffers> buffers) = 0;
  // Returns whether it is done. Makes progress without waiting.
  virtual bool test(Ticket ticket) = 0;
  virtual void wait(Ticket ticket) = 0;

  // Returns when this rank's part is done, as wait() does. It is one of the group's ordered collectives.
  // InternalError, on all members, if more rows arrive than fit.
  virtual void exchange_rows(const RowExchange& exchange) = 0;
  // exchange_rows() in two halves, if each member knows the number of rows from each other: the counts in
  // `receives`. start_rows() returns immediately; `exchange` and everything that it points to stay unchanged
  // until finish_rows() returns, and `take` may run on another thread in between.
  virtual Ticket start_rows(const RowExchange& exchange) = 0;
  virtual void finish_rows(Ticket ticket) = 0;
  // Call before the first exchange_rows, with the most bytes of rows that an exchange sends and receives.
  virtual void reserve_rows(int64_t sent_bytes, int64_t received_bytes) = 0;

  // Point to point, in order for each pair. The buffer belongs to the communicator until wait() returns.
  virtual Ticket send(int to, const void* from, int64_t bytes) = 0;
  virtual Ticket receive(int from, void* to, int64_t bytes) = 0;

  virtual void barrier() = 0;
};

}  // namespace strata::comm
