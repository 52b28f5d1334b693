// A group of ranks of one process. Peers' memory is read in place: each member copies or sums its own
// results.
#pragma once

#include <list>
#include <memory>
#include <mutex>

#include "comm/local_job.h"
#include "comm/sums.h"

namespace strata::comm {

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(LocalJob& job, std::shared_ptr<LocalGroup> group, int member, double wait_limit);
  // If collectives are in flight, fails the job; peers do not read this member's buffers afterwards.
  ~LocalCommunicator() override;
  LocalCommunicator(const LocalCommunicator&) = delete;
  LocalCommunicator& operator=(const LocalCommunicator&) = delete;

  int rank() const override { return member_; }
  int size() const override { return size_; }
  std::unique_ptr<Prepared> prepare(Operation operation) override;
  int64_t staging_bytes() const override { return 0; }
  Ticket start(Prepared& prepared, std::span<const Buffers> buffers) override;
  bool test(Ticket ticket) override;
  void wait(Ticket ticket) override;
  void exchange_rows(const RowExchange& exchange) override;
  Ticket start_rows(const RowExchange& exchange) override;
  void finish_rows(Ticket ticket) override { wait(ticket); }
  void reserve_rows(int64_t, int64_t) override {}
  Ticket send(int to, const void* from, int64_t bytes) override;
  Ticket receive(int from, void* to, int64_t bytes) override;
  void barrier() override;

  // Makes progress without waiting for peers; does nothing once the job has failed. If another thread is
  // making progress, waits for it if `waits`, else returns.
  void advance(bool waits);

 private:
  struct Message {
    uint64_t ticket = 0;
    bool sending = false;
    int peer = 0;
    std::byte* to = nullptr;
    int64_t bytes = 0;
    std::atomic<bool> taken{false};
    uint64_t entry = 0;  // of the flight recorder
  };

  Ticket post(const std::shared_ptr<const Plan>& plan, std::span<const Buffers> buffers,
              const RowExchange* rows);
  bool done(Ticket ticket);
  bool advance_collective(uint64_t number);
  void advance_messages();
  // Whether a message that starts now is lost. Call with the lock.
  bool loses();
  bool passed(uint64_t number, Mark mark);
  void reach(uint64_t number, Mark mark);
  void ring(int member) { job_.rank(group_->ranks[static_cast<size_t>(member)]).bell.ring(); }

  void check_agreement(const LocalGroup::Slot& slot, uint64_t number) const;
  // Each returns early once the job has failed.
  void take_exchange(const LocalGroup::Slot& slot);
  void take_rows(const LocalGroup::Slot& slot);
  void take_broadcast(const LocalGroup::Slot& slot);
  void sum_shares(const LocalGroup::Slot& slot);
  void copy_shares(const LocalGroup::Slot& slot);
  void sum(const LocalGroup::Slot& slot, size_t transfer, int64_t begin, int64_t end);
  void copy(const Stream& from, const std::byte* from_base, const Stream& to, std::byte* to_base);
  bool take_message(const Message& message);

  // Fails the job if a wait since `begun` cannot end or has exceeded its limit.
  void check_wait(Ticket ticket, double begun);
  struct Waiting {
    std::string what;
    std::vector<int> waiting, missing;  // ranks
  };
  Waiting describe_wait(Ticket ticket);

  LocalJob& job_;
  LocalRank& own_;
  const std::shared_ptr<LocalGroup> group_;
  const int member_, size_;
  const double wait_limit_;

  std::mutex mutex_;                                       // guards the following members
  bool lost_ = false;                                      // a message, and with it all later ones
  uint64_t started_ = 0;                                   // collectives are numbered from 1
  uint64_t worked_ = 0;                                    // this member no longer reads peers for them
  uint64_t completed_ = 0;                                 // peers no longer read this member either
  bool summed_ = false;                                    // this member's share of all-reduce worked_ + 1
  std::array<uint64_t, LocalGroup::kInFlight> entries_{};  // of the flight recorder
  uint64_t messages_started_ = 0;
  std::list<Message> messages_, unused_messages_;
  std::vector<Addend> addends_;
  std::vector<Cursor> cursors_;
  std::vector<RowSource> row_sources_;
  PreparedPlan barrier_, rows_;
};

}  // namespace strata::comm
