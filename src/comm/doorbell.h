// Where the threads of a rank sleep until something may have moved for them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace strata::comm {

class Doorbell {
 public:
  // Between arming and sleeping a thread looks once more whether it must sleep: what moves after that rings.
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
