// Sets the thread count for a library that reads the caller's number of compute threads. Internal to the gemm
// family.
#pragma once

#include "base/parallel.h"

namespace strata::cpu::detail {

// Sets the calling thread's number of compute threads and restores the previous one on destruction.
class WithThreads {
 public:
  explicit WithThreads(int threads) : before_(compute_threads()) { set_compute_threads(threads); }
  ~WithThreads() { set_compute_threads(before_); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  int before_;
};

}  // namespace strata::cpu::detail
