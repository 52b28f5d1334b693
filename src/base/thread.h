// A thread with an owner: joined on destruction, its exception kept for the owner.
#pragma once

#include <exception>
#include <functional>
#include <stop_token>
#include <thread>

namespace strata {

class OwnedThread {
 public:
  OwnedThread() = default;
  explicit OwnedThread(std::function<void(std::stop_token)> body);
  ~OwnedThread();
  OwnedThread(const OwnedThread&) = delete;
  OwnedThread& operator=(const OwnedThread&) = delete;

  void request_stop() { thread_.request_stop(); }
  // Waits for the end and rethrows the thread's exception.
  void join();

 private:
  std::exception_ptr error_;
  std::jthread thread_;
};

}  // namespace strata
