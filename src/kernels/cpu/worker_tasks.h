// Tasks that need memory of their own while they run.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/function_ref.h"
#include "base/parallel.h"

namespace strata::cpu {

// task(i, worker) for every i below `tasks`, workers numbered from 0 and below `most`: what a caller keeps
// for each worker is used by one task at a time. No result may depend on which worker does what.
inline void for_each_task(int64_t tasks, int64_t most, FunctionRef<void(int64_t, int64_t)> task) {
  const int64_t workers = std::min<int64_t>({most, compute_threads(), tasks});
  std::atomic<int64_t> next{0};
  parallel_for(workers, [&](int64_t worker) {
    flush_denormals();  // also on the caller's thread when it works alone
    for (int64_t i = next++; i < tasks; i = next++) task(i, worker);
  });
}

}  // namespace strata::cpu
