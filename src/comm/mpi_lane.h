// Executes one slice of a collective at a time with MPI messages. A communicator has several lanes, with
// separate tags, and assigns them slices in turn, so that one slice is in flight while another is summed.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "comm/mpi_calls.h"
#include "comm/slices.h"

namespace strata::comm {

// A prepared collective.
class MpiPrepared final : public Prepared {
 public:
  struct Shape {
    Plan plan;
    std::unique_ptr<Slices> slices;  // refers to `plan`
  };
  explicit MpiPrepared(std::shared_ptr<const Shape> made) : shape(std::move(made)) {}
  const std::shared_ptr<const Shape> shape;
};

// State of a started collective until it is done.
struct MpiWork {
  uint64_t number = 0;
  std::shared_ptr<const MpiPrepared::Shape> shape;
  std::vector<Buffers> buffers;
  uint64_t entry = 0;     // of the flight recorder
  int64_t next = 0;       // the next slice to assign to a lane
  int64_t remaining = 0;  // slices that are not done
};

class MpiLane {
 public:
  // `ranks` by member.
  MpiLane(MpiCalls& calls, const std::vector<int>& ranks, const DomainMap& domains, int member, int tag);

  bool idle() const { return work_ == nullptr; }
  void begin(MpiWork& work, int64_t slice);
  // Makes progress without waiting; returns whether there was any. Updates work.remaining when the slice is
  // done.
  bool advance();
  // Call before buffers are freed.
  void cancel();

 private:
  enum Phase : uint8_t { kGather, kReduce, kReturn, kSpread, kPhases };
  // A pairwise exchange: messages in the order of (step, chunk), with a window of those in flight.
  struct Pairs {
    int step = 1;
    int64_t at = 0;
    struct Open {
      MpiRequest request;
      bool busy = false;
      std::byte* staged = nullptr;  // null: in place
      int peer = 0;
      Range range;
    };
    std::array<Open, kPairWindow> window;
  };

  void post();
  void finish();
  void post_gather();
  void finish_gather();
  void post_reduce();
  void finish_reduce();
  void post_return();
  void post_spread();
  void finish_spread();
  void set_result(const std::vector<const std::byte*>& addends);
  void copy_own();
  bool advance_pairs();
  // Returns whether all messages in one direction are done.
  bool advance_window(Pairs& pairs, bool sending, bool* moved);
  bool post_pair(Pairs& pairs, bool sending, size_t slot);

  const Slices& slices() const { return *work_->shape->slices; }
  std::byte* stage(int64_t bytes);
  std::byte* place_of_result(int owner, const Range& range);
  void send(const std::byte* from, int64_t bytes, int to);
  void receive(std::byte* to, int64_t bytes, int from);
  // Bytes in the wire type, in place or packed.
  const std::byte* outgoing(int owner, const Range& range);
  bool helps(int owner) const { return domains_.helper(domains_.own(), owner) == member_; }

  MpiCalls& calls_;
  const std::vector<int>& ranks_;
  const DomainMap& domains_;
  const int member_, tag_;

  MpiWork* work_ = nullptr;
  int64_t slice_ = 0;
  int phase_ = 0;
  std::vector<std::byte> staging_;
  int64_t used_ = 0;
  std::vector<MpiRequest> requests_;
  // For this slice, by owner: data from the domain's members (in order) or from the domains, and the result.
  std::vector<std::vector<const std::byte*>> addends_;
  std::vector<const std::byte*> sums_;  // of this domain, by owner
  std::vector<const std::byte*> results_;
  Pairs sends_, receives_;
};

}  // namespace strata::comm
