// A group of ranks that are processes. Collectives consist of point-to-point messages and this engine's own
// sums.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <mutex>

#include "comm/mpi_lane.h"

namespace strata::comm {

class MpiWorld;

class MpiCommunicator final : public Communicator {
 public:
  static constexpr int kTags = 4;  // per group: one for each lane, one for messages
  MpiCommunicator(MpiWorld& world, std::vector<int> ranks, std::string name, const Topology& topology,
                  int member, uint64_t id, int first_tag, const WorldOptions& options);
  ~MpiCommunicator() override;
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return member_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  std::unique_ptr<Prepared> prepare(Operation operation) override;
  int64_t staging_bytes() const override {
    return std::ssize(lanes_) * staging_ + std::ssize(sent_rows_) + std::ssize(received_rows_);
  }
  Ticket start(Prepared& prepared, std::span<const Buffers> buffers) override;
  bool test(Ticket ticket) override;
  void wait(Ticket ticket) override;
  void exchange_rows(const RowExchange& exchange) override;
  Ticket start_rows(const RowExchange& exchange) override;
  void finish_rows(Ticket ticket) override;
  void reserve_rows(int64_t sent_bytes, int64_t received_bytes) override;
  Ticket send(int to, const void* from, int64_t bytes) override;
  Ticket receive(int from, void* to, int64_t bytes) override;
  void barrier() override;

  // Makes progress without waiting for peers; returns whether there was any. If another thread is making
  // progress, waits for it if `waits`, else returns.
  bool advance(bool waits);
  // Whether a collective is in flight.
  bool busy();

 private:
  void wait_for_rows();
  struct Message {
    uint64_t ticket = 0;
    bool sending = false;
    int peer = 0;
    std::byte* buffer = nullptr;
    int64_t bytes = 0, at = 0;  // start of the chunk in flight
    MpiRequest chunk;
    bool in_flight = false;
    uint64_t entry = 0;
  };

  // Whether a message that starts now is lost. Call with the lock.
  bool loses();
  Ticket add_message(bool sending, int peer, std::byte* buffer, int64_t bytes);
  bool done(Ticket ticket);
  bool advance_works();
  bool advance_messages();
  bool advance_message(Message& message);
  void check_wait(Ticket ticket, double begun, double moved);
  std::string describe(Ticket ticket, uint64_t* number);

  MpiWorld& world_;
  const std::vector<int> ranks_;
  const std::string name_;
  const DomainMap domains_;
  const int member_;
  const uint64_t id_;
  const int first_tag_;
  const WorldOptions options_;

  std::atomic<uint64_t> started_{0};  // collectives, numbered from 1
  std::atomic<int64_t> staging_{0};   // per lane

  std::mutex mutex_;   // guards the following members
  bool lost_ = false;  // a message, and with it all later ones
  std::array<MpiLane, 2> lanes_;
  uint64_t slices_begun_ = 0;
  std::deque<MpiWork> works_;  // unfinished ones, oldest first
  uint64_t completed_ = 0;
  uint64_t messages_started_ = 0;
  std::list<Message> messages_;
  std::unique_ptr<Prepared> barrier_;
  std::vector<std::byte> barrier_bytes_;
  // Listed rows in flight, packed.
  std::vector<std::byte> sent_rows_, received_rows_;
  std::vector<int64_t> sent_counts_, received_counts_;  // by member
  std::vector<Ticket> row_tickets_;
  std::vector<RowSource> row_sources_;
  const RowExchange* rows_ = nullptr;  // in flight
  Ticket rows_started_ = {};           // the newest
};

}  // namespace strata::comm
