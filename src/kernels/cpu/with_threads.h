// For a library that counts the compute threads of its caller. Internal to the gemm family.
#pragma once

#include "base/parallel.h"

namespace strata::cpu::detail {

// The calling thread has so many compute threads as long as this lives, and as many as before afterwards.
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
