// Runs tasks that need private memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/function_ref.h"
#include "base/parallel.h"

namespace strata::cpu {

// Calls task(i, worker) for every i below `tasks`; workers are numbered from 0 and below `most`. Only one
// task at a time uses the memory that a caller keeps for a worker. Results must not depend on which worker
// runs a task.
inline void for_each_task(int64_t tasks, int64_t most, FunctionRef<void(int64_t, int64_t)> task) {
  const int64_t workers = std::min<int64_t>({most, compute_threads(), tasks});
  std::atomic<int64_t> next{0};
  parallel_for(workers, [&](int64_t worker) {
    flush_denormals();  // also on the caller's thread if it is the only worker
    for (int64_t i = next++; i < tasks; i = next++) task(i, worker);
  });
}

}  // namespace strata::cpu
