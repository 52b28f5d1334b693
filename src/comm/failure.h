// The failure that ends a job: the first one counts.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>

namespace strata::comm {

class Failure {
 public:
  // Returns false if there was one already.
  bool set(int rank, int code, std::string_view message, std::exception_ptr error = nullptr) {
    const std::lock_guard lock(mutex_);
    if (failed()) return false;
    rank_ = rank;
    code_ = code;
    message_ = message;
    error_ = std::move(error);
    failed_ = true;
    return true;
  }
  bool failed() const { return failed_; }
  // The rank that failed, or that found another one gone; −1 if there is no failure.
  int rank_if_failed() const { return failed() ? rank_ : -1; }
  // Valid once failed.
  int rank() const { return rank_; }
  int code() const { return code_; }
  const std::string& message() const { return message_; }
  // As thrown; null if only a message is known.
  const std::exception_ptr& error() const { return error_; }

 private:
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  int rank_ = 0, code_ = 0;
  std::string message_;
  std::exception_ptr error_;
};

}  // namespace strata::comm
