// Collectives of a group of ranks.
//
// A collective is prepared once (prepare), from data alone, and then started as often as it is needed:
// start() says where the bytes lie, returns at once, and wait() returns when this rank's part is done: what
// it receives is there, and no peer reads its send buffers any more. Between the two neither buffer may be
// touched, apart from reading what is sent. All members of a group start the same collectives in the same
// order; they finish in that order too. Up to 64 may be under way on a group; starting one more may wait for
// the oldest.
//
// Sums are made in an order that follows from the group and the topology alone, in fp32 (f64 and integers in
// their own type), so that both engines, any chunk size and either kind of progress give the same bits:
//   flat          ((x0 + x1) + x2) + …, by the members' order
//   hierarchical  the same within each fast domain, then over the domains in the order of their first members
// What travels is rounded to what it is sent as (bf16 and f16 tensors: their own type): addends, the summing
// member's own too; the sums of domains where there are several; the sums of an all-reduce. All members get
// the same bits of an all-reduce. Subnormal terms and sums count as zero.
//
// Errors: WorldError when a rank fails, dies or stops answering, on all ranks, with the first failing rank's
// message; InternalError where members disagree. A communicator ends before the buffers of what it has under
// way. Where that is not done by then (an error unwinds, say), its end sees to it that no rank of this
// process reads or writes them any more, and the job ends too.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "tensor/dtype.h"

namespace strata::comm {

// `count` runs of `bytes` bytes each; the first begins at `offset`, each other `stride` bytes behind the one
// before. Whole elements, on their boundaries. What is received overlaps nothing.
struct Run {
  int64_t offset = 0, bytes = 0;
  int64_t count = 1, stride = 0;
  int64_t total() const { return bytes * count; }
  bool operator==(const Run&) const = default;
};
using Runs = std::vector<Run>;

enum class Collective : uint8_t {
  kExchange,       // each member gives each other its runs: all-gather, all-to-all, scatter
  kReduceScatter,  // what they give a member is summed there
  kAllReduce,      // whole buffers are summed, everywhere
  kBroadcast,      // from member `root`
  kRows,           // exchange_rows alone
};

// One tensor of a collective, as this member sees it.
struct Transfer {
  DType dtype = DType::kF32;
  // kExchange, kReduceScatter: by member, what it gets out of the send buffer; one entry: all get the same.
  // The member itself is among them.
  std::vector<Runs> send = {};
  // kExchange: by member, where what comes from it lies in the receive buffer. kReduceScatter: one entry,
  // where the sum lies. As many bytes as were sent there, in order; runs may be cut differently on both
  // sides.
  std::vector<Runs> receive = {};
  // Size of the receive buffer; of both in kAllReduce and kBroadcast. What no run of kExchange or
  // kReduceScatter covers (the padding of uneven shards) becomes zero, unless the collective adds to what
  // lies there.
  int64_t bytes = 0;
};

struct Operation {
  Collective collective = Collective::kAllReduce;
  std::vector<Transfer> transfers;  // in one call: fewer messages
  int root = 0;                     // kBroadcast
  // What f32 sums are sent as, kF32 or kBF16: rounded when sent (by the member itself too), summed in fp32;
  // the sums of an all-reduce are rounded again on their way back.
  DType payload = DType::kF32;
  std::string label = {};  // for the flight recorder: "all-reduce of layer 3's gradients"
};

// Where the bytes of one transfer lie this time.
struct Buffers {
  const void* send = nullptr;
  // May be `send` in kAllReduce and kBroadcast, and in kExchange where the runs for the member itself agree
  // and what comes from others overlaps nothing that is sent.
  void* receive = nullptr;
  // Sums are added to what lies there (kReduceScatter, kAllReduce): on all members, and not in place.
  bool adds = false;
};

// An Operation as the engine wants it.
class Prepared {
 public:
  virtual ~Prepared() = default;
};

// Some rows of a buffer: those listed, or those from `first` on.
struct RowSet {
  const int32_t* rows = nullptr;
  int64_t first = 0, count = 0;
  int64_t row(int64_t i) const { return rows != nullptr ? rows[i] : first + i; }
};

// The rows that come from a member, where they can be read.
struct RowSource {
  const std::byte* base = nullptr;
  RowSet rows;
  const std::byte* row(int64_t i, int64_t row_bytes) const { return base + rows.row(i) * row_bytes; }
};

// Rows that members pick for each other when it is carried out. The member itself is among them.
struct RowExchange {
  const void* send = nullptr;
  void* receive = nullptr;
  int64_t row_bytes = 0;
  std::span<const RowSet> sends;  // by member
  // By member, where what comes from it lies: room for `count` rows before, as many as came afterwards. Two
  // members' rows do not overlap; rows that nobody sends stay as they are.
  std::span<RowSet> receives;
  // Where it is given it takes the rows of all members, in their order, and nothing is copied: `receive` and
  // the places of `receives` are not used, their counts are.
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
  // What the engine holds at most for the collectives prepared so far, beside the caller's buffers.
  virtual int64_t staging_bytes() const = 0;
  virtual Ticket start(Prepared& prepared, std::span<const Buffers> buffers) = 0;
  // Whether it is done. Makes progress, as far as that goes without waiting.
  virtual bool test(Ticket ticket) = 0;
  virtual void wait(Ticket ticket) = 0;

  // Returns when this rank's part is done, as wait() does. Collectives in their order count it as one.
  // InternalError, on all members, where more rows come than there is room for.
  virtual void exchange_rows(const RowExchange& exchange) = 0;
  // The same in two halves, where each member knows how many rows come from which: counts of `receives` say
  // it. start_rows() returns at once; `exchange` and all that it points to stay as they are until
  // finish_rows() returns, and `take` may run on another thread in between.
  virtual Ticket start_rows(const RowExchange& exchange) = 0;
  virtual void finish_rows(Ticket ticket) = 0;
  // Before the first exchange_rows: how many bytes of rows one of them sends and receives at most.
  virtual void reserve_rows(int64_t sent_bytes, int64_t received_bytes) = 0;

  // Point to point, in order for each pair. The buffer belongs to the communicator until wait() is through.
  virtual Ticket send(int to, const void* from, int64_t bytes) = 0;
  virtual Ticket receive(int from, void* to, int64_t bytes) = 0;

  virtual void barrier() = 0;
};

}  // namespace strata::comm
