// A condition on which the threads of a rank sleep until they may be able to continue.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace strata::comm {

class Doorbell {
 public:
  // Between arm() and sleep() a thread checks again whether it must sleep. Any later progress rings the bell.
  uint64_t arm() {
    ++sleepers_;
    const std::lock_guard lock(mutex_);
    return rings_;
  }
  void disarm() { --sleepers_; }
  void sleep(uint64_t armed, std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, limit, [&] { return rings_ != armed; });
  }
  void ring() {
    if (sleepers_ == 0) return;
    {
      const std::lock_guard lock(mutex_);
      ++rings_;
    }
    wake_.notify_all();
  }

 private:
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  uint64_t rings_ = 0;
};

}  // namespace strata::comm
