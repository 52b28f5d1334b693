// Seconds of work, for benchmarks on machines that others use too.
#pragma once

#include <ctime>

#include "base/clock.h"
#include "base/parallel.h"

namespace strata {

// Processor time of one thread; of several threads, time.
inline double used_seconds() {
  if (compute_threads() > 1) return monotonic_seconds();
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}
template <typename Work>
double seconds_of(const Work& work) {
  const double start = used_seconds();
  work();
  return used_seconds() - start;
}

}  // namespace strata
