// State shared by the ranks of one process: engine `local`.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "comm/doorbell.h"
#include "comm/failure.h"
#include "comm/flight_recorder.h"
#include "comm/plan.h"

namespace strata::comm {

class LocalCommunicator;

struct LocalRank {
  // Makes progress in all communicators of this rank. Waits if another thread is making progress in `mine`.
  void advance(LocalCommunicator* mine);

  Doorbell bell;
  FlightRecorder recorder;
  // Threads of this rank that are reading or writing buffers right now, perhaps other ranks'.
  std::atomic<int> busy{0};
  std::atomic<bool> loses_next{false};  // World::lose_next
  std::atomic<bool> ended{false};       // its function has returned
  // A wait in one communicator makes progress in all. Iteration shares the lock, changes take it exclusively.
  std::shared_mutex communicators_lock;
  std::vector<LocalCommunicator*> communicators;
};

// A collective passes three marks, each once every member has reached it.
enum Mark : uint8_t {
  kPosted,  // its buffers may be read
  kSummed,  // its share of an all-reduce is summed
  kRead,    // it reads no peer's buffers any more
  kMarks
};

struct LocalGroup {
  static constexpr uint64_t kInFlight = 64;  // most unfinished collectives of a member
  struct Post {
    std::shared_ptr<const Plan> plan;
    std::vector<Buffers> buffers;
    const RowExchange* rows = nullptr;  // for kRows
  };
  // An entry of the ring, for collectives number, number + kInFlight, …. A member posts the next one only
  // when all have read the last.
  struct Slot {
    std::vector<Post> posts;  // by member
    std::array<std::atomic<uint64_t>, kMarks> reached{};
  };
  // A message in flight; the receiver copies it from the sender's buffer.
  struct Parcel {
    int from = 0;
    const std::byte* at = nullptr;
    int64_t bytes = 0;
    std::atomic<bool>* taken = nullptr;
  };
  struct Inbox {
    std::mutex mutex;
    std::deque<Parcel> parcels;
  };

  std::vector<int> ranks;  // by member
  std::string name;
  Topology topology;
  Domains domains;
  int64_t chunk_bytes = 0;
  std::array<Slot, kInFlight> slots;
  std::vector<Inbox> inboxes;  // by member
  // By member, the last collective that it has posted, and the last that it has read; for reports.
  std::vector<std::atomic<uint64_t>> posted, read;

  LocalGroup(std::vector<int> group_ranks, std::string group_name, const Topology& group_topology,
             int64_t chunk);
  // Collectives are numbered from 1.
  Slot& slot(uint64_t number) { return slots[(number - 1) % kInFlight]; }
  // The value of a mark's counter once every member has reached it in this collective.
  uint64_t full(uint64_t number) const { return ((number - 1) / kInFlight + 1) * ranks.size(); }
};

class LocalJob {
 public:
  explicit LocalJob(int ranks);
  int size() const { return static_cast<int>(ranks_.size()); }
  LocalRank& rank(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  const std::string& host() const { return host_; }
  // Whether waiting threads may spin briefly: only if there is a core for each rank.
  bool spins() const { return spins_; }

  // The state that all members of a group share; `occurrence` numbers groups with the same ranks and name.
  std::shared_ptr<LocalGroup> group(const std::vector<int>& ranks, const std::string& name, int occurrence,
                                    const Topology& topology, int64_t chunk_bytes);

  // Sets the failure, if it is the first, and wakes all ranks.
  void fail(int rank, int code, std::string_view message, std::exception_ptr error = nullptr);
  const Failure& failure() const { return failure_; }
  bool failed() const { return failure_.failed(); }
  // Called when a rank unwinds: no rank accesses buffers from now on. The code that catches the error calls
  // fail() with its message; if it never does, check_halt() uses `message`.
  void halt(int rank, std::string_view message);
  bool halted() const { return halted_; }
  void check_halt();
  // Throws the failure once no rank accesses buffers any more, since unwinding may free them.
  [[noreturn]] void throw_failure();
  // Returns when no rank accesses buffers. Once the job has failed or is halted, no rank begins to.
  void quiesce();
  void ended(int rank);

 private:
  std::vector<std::unique_ptr<LocalRank>> ranks_;
  std::string host_;
  bool spins_ = false;
  Failure failure_;
  std::atomic<bool> halted_{false};  // since halted_at_ (monotonic seconds), by halting_rank_
  std::mutex halt_mutex_;
  double halted_at_ = 0;
  int halting_rank_ = 0;
  std::string halt_message_;
  std::mutex groups_mutex_;
  struct Forming {
    std::shared_ptr<LocalGroup> group;
    size_t joined = 0;
  };
  std::map<std::string, Forming> forming_;
};

}  // namespace strata::comm
