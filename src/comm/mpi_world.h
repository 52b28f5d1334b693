// Ranks that are processes of MPI.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/thread.h"
#include "comm/doorbell.h"
#include "comm/mpi_communicator.h"
#include "comm/mpi_watchdog.h"

namespace strata::comm {

// Waits without using a core that another rank needs: yields at first, then sleeps for up to half a
// millisecond.
class BackOff {
 public:
  // `spins`: every rank on this host has its own core.
  explicit BackOff(bool spins) : spins_(spins) {}
  void reset() { turns_ = 0; }
  // Returns false if it slept.
  bool pause();

 private:
  bool spins_;
  int turns_ = 0;
};

class MpiWorld final : public World {
 public:
  // `rank` and `size` from the launcher; ConfigError if MPI's differ.
  MpiWorld(int rank, int size);
  // Waits for the other ranks. After a failure it instead ends the job, once they had time to report the
  // reason.
  ~MpiWorld() override;
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view engine() const override { return "mpi"; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  const std::string& host() const override { return host_; }
  Topology hosts() const override { return hosts_; }
  void configure(const WorldOptions& options) override;
  std::unique_ptr<Communicator> group(std::span<const int> ranks, std::string name,
                                      const Topology& topology) override;
  void barrier() override { everyone_->barrier(); }
  void doing(std::string_view what) override { recorder_.doing(what); }
  std::string flight_record() const override { return recorder_.text(); }
  void fail(int code, std::string_view message) override;
  int failed_rank() const override { return failure_.rank_if_failed(); }
  void lose_next() override { loses_next_ = true; }
  void check() override;
  [[noreturn]] void abort(int code) override;

  // For the communicators of this world.
  MpiCalls& calls() { return calls_; }
  FlightRecorder& recorder() { return recorder_; }
  const Failure& failure() const { return failure_; }
  bool spins() const { return spins_; }
  bool closing() const { return closing_; }
  bool left(int rank) const { return watchdog_->left(rank); }
  void fail_hang(std::string_view what, double seconds, uint64_t group, uint64_t number,
                 const std::vector<int>& ranks) {
    watchdog_->fail_hang(what, seconds, group, number, ranks);
  }
  // Whether lose_next() waits for a message; the caller loses it.
  bool take_loss() { return loses_next_.exchange(false); }
  // Wakes the progress thread, since something was started.
  void ring() { bell_.ring(); }
  // Makes progress in all communicators of this rank.
  bool advance(MpiCommunicator* mine);
  void add(MpiCommunicator& communicator, uint64_t id, const std::atomic<uint64_t>& started);
  void remove(MpiCommunicator& communicator, uint64_t id);

 private:
  void progress(const std::stop_token& stop);
  bool busy();
  // Returns a unique id for a new group, which its first member sends to the others.
  uint64_t agree(const std::vector<int>& ranks, uint64_t description, const std::string& name);
  void wait_for(MpiRequest& request);
  void find_hosts();
  // After a failure, returns once all ranks have had time to learn of it and this one has stopped using MPI.
  // Only then may buffers of messages in flight be freed, since until then other ranks access them.
  void settle();

  MpiCalls calls_;
  int rank_ = 0, size_ = 1;
  int64_t last_tag_ = 0;
  int local_rank_ = 0, local_size_ = 1;
  bool spins_ = false;
  std::string host_;
  Topology hosts_;
  WorldOptions options_;
  FlightRecorder recorder_;
  Failure failure_;
  std::once_flag settled_;
  std::atomic<bool> closing_{false};
  std::atomic<bool> loses_next_{false};
  Doorbell bell_;
  std::unique_ptr<MpiWatchdog> watchdog_;
  std::mutex groups_mutex_;
  uint64_t groups_led_ = 0;
  std::shared_mutex communicators_lock_;  // shared for iteration, exclusive for changes
  std::vector<MpiCommunicator*> communicators_;
  std::unique_ptr<Communicator> everyone_;
  std::unique_ptr<OwnedThread> progress_;
};

}  // namespace strata::comm
