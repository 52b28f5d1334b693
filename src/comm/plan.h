// The plan of a collective: a checked Operation, from the point of view of one member of a group.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "comm/communicator.h"
#include "comm/runs.h"
#include "comm/world.h"

namespace strata::comm {

// The members of a group in summation order: by fast domain, in the order of the domains' first members.
// ends[d] is the end of domain d in `members`.
struct Domains {
  std::vector<int> members;
  std::vector<int> ends;
  bool hierarchical() const { return ends.size() > 1; }
};
// `topology` by member. InternalError unless it has one entry for each.
Domains domains_of(const Topology& topology, int size);

struct TransferPlan {
  DType dtype = DType::kF32;
  DType wire = DType::kF32;  // type in which elements are sent
  std::vector<Stream> send, receive;
  int64_t bytes = 0;
  Runs gaps;  // of the receive buffer: zeroed
  // The data for `member` in the send buffer, and the place of its data in the receive buffer. Sums have one
  // receive stream.
  const Stream& sent_to(int member) const { return send[send.size() == 1 ? 0 : static_cast<size_t>(member)]; }
  const Stream& got_from(int member) const {
    return receive[receive.size() == 1 ? 0 : static_cast<size_t>(member)];
  }
};

struct Plan {
  Collective collective = Collective::kAllReduce;
  int rank = 0, size = 1;
  int root = 0;
  std::string label;
  std::vector<TransferPlan> transfers;
  int64_t bytes = 0;  // of this member's part, for the flight recorder
  bool sums() const {
    return collective == Collective::kReduceScatter || collective == Collective::kAllReduce;
  }
};

// InternalError, with label and transfer, if the operation is inconsistent or does not match the group.
Plan make_plan(Operation operation, int rank, int size);
// Zeroes the bytes of the receive buffer that no run covers.
void zero_gaps(const TransferPlan& transfer, void* receive);
// InternalError unless there is a set of rows for each member and its own rows fit.
void check_rows(const RowExchange& exchange, int size);
// Copies the rows of one set to those of another, in order; returns false if `stops` interrupted the copy.
bool copy_rows(const RowSet& from, const std::byte* send, const RowSet& to, std::byte* receive,
               int64_t row_bytes, FunctionRef<bool()> stops);

// InternalError if the buffers do not match the plan.
void check_buffers(const Plan& plan, std::span<const Buffers> buffers);

// The elements [begin, end) of an all-reduce that `member` of `size` sums: whole cache lines, in order.
struct Share {
  int64_t begin = 0, end = 0;
};
Share share_of(int64_t elements, DType dtype, int member, int size);

// InternalError if an option is out of range; chunks become whole cache lines.
WorldOptions checked(WorldOptions options);
// The member number of rank `rank` in a group. InternalError unless all ranks are in [0, world) and distinct,
// and `rank` is one of them.
int member_of(std::span<const int> ranks, int rank, int world, const std::string& name);

// The Prepared of engine `local`. Shared, since peers read it while a collective runs.
class PreparedPlan final : public Prepared {
 public:
  explicit PreparedPlan(Plan made) : plan(std::make_shared<const Plan>(std::move(made))) {}
  const std::shared_ptr<const Plan> plan;
};

}  // namespace strata::comm
