// Heartbeats, failures and reports between the processes of a job: small messages on a separate tag, sent
// and received by a thread of each process, independently of its other threads.
//
// Each rank sends a heartbeat to the next one, in a circle. A rank that receives none from its predecessor
// for `silence_limit` asks the others for their activity and ends the job. If several consecutive ranks are
// silent, the rank after them notices.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/thread.h"
#include "comm/failure.h"
#include "comm/flight_recorder.h"
#include "comm/mpi_calls.h"

namespace strata::comm {

class MpiWatchdog {
 public:
  // `failed` is called once there is a failure, on the watchdog's thread or the one that reported it.
  MpiWatchdog(MpiCalls& calls, int rank, int size, const FlightRecorder& recorder, Failure& failure,
              std::function<void()> failed);
  ~MpiWatchdog();
  MpiWatchdog(const MpiWatchdog&) = delete;
  MpiWatchdog& operator=(const MpiWatchdog&) = delete;

  void set_silence_limit(double seconds) { silence_limit_ = seconds; }
  // Sets the failure, if it is the first, and notifies all ranks. Returns when the messages are sent, or
  // after a second.
  void fail(int code, const std::string& message);
  // Ends the job because a collective, `number` of the group, has waited for too long.
  void fail_hang(std::string_view what, double seconds, uint64_t group, uint64_t number,
                 const std::vector<int>& ranks);
  // Announces that this rank has ended; left() returns whether another has.
  void leave();
  bool left(int rank) const { return peers_[static_cast<size_t>(rank)].left; }
  // Registers the counter from which other ranks' questions are answered.
  void add_group(uint64_t group, const std::atomic<uint64_t>& started);
  void remove_group(uint64_t group);

 private:
  enum Kind : int32_t { kHeartbeat, kFailure, kQuestion, kAnswer, kLeave };
  struct Header {
    Kind kind = kHeartbeat;
    int32_t code = 0;
    uint64_t group = 0, number = 0;
  };
  struct Peer {
    std::atomic<bool> left{false};
    std::atomic<bool> silent{false};
    double heard = 0;       // monotonic seconds
    std::string report;     // its last summary
    bool answered = false;  // the current question
    bool started = false;   // the collective in that question
  };
  struct Sending {
    MpiRequest request;
    std::vector<char> bytes;
  };

  void run(const std::stop_token& stop);
  void tick();  // this and the following require mutex_
  void send(int to, const Header& header, std::string_view text);
  void send_all(const Header& header, std::string_view text);
  void receive_all();
  void receive(int from, int64_t bytes);
  bool flush();  // whether everything has been sent
  // Asks `ranks` for their activity, and waits for at most half a second.
  void ask(const std::vector<int>& ranks, uint64_t group, uint64_t number);
  void check_silence();
  void fail_locked(int code, const std::string& message);
  std::string report_of(int rank);

  MpiCalls& calls_;
  const int rank_, size_;
  const FlightRecorder& recorder_;
  Failure& failure_;
  const std::function<void()> failed_;
  std::atomic<double> silence_limit_{8};

  std::mutex mutex_;
  std::vector<Peer> peers_;
  std::list<Sending> sending_;
  std::map<uint64_t, const std::atomic<uint64_t>*> groups_;
  double last_tick_ = 0, last_heartbeat_ = 0;
  std::unique_ptr<OwnedThread> thread_;
};

}  // namespace strata::comm
