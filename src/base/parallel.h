// Data parallelism of one process: the only place that starts compute threads. OpenMP's pool carries it,
// because oneDNN uses the same one; under the thread sanitizer plain threads do.
#pragma once

#include <cstdint>
#include <string>

#include "base/function_ref.h"

namespace strata {

// Threads that parallel_for of the calling thread uses. Every thread that owns a rank sets its own.
int compute_threads();
void set_compute_threads(int threads);

// How many processors this process may use, and what limits them, in words; empty: nothing does. The least of
// those that it is bound to, the CPU quota of its control groups (control_group.h) and OMP_NUM_THREADS.
struct ProcessorLimit {
  int processors = 1;
  std::string source;
};
ProcessorLimit processor_limit();
int available_processors();

// Lowers compute_threads() of the calling thread to the CPU quota, which OpenMP knows nothing of. Call it at
// the start of each thread that may compute and has not set its own number.
void keep_to_cpu_quota();

// Calls task(thread) once on each compute thread at the same time, threads counted from 0. Not to be nested.
void on_each_thread(FunctionRef<void(int)> task);

// Calls task(i) once for every i in [0, tasks), on all compute threads, in no set order. Results must not
// depend on which thread runs a task: split work by size, never by thread count. The first exception is
// rethrown here. Nested calls run on the calling thread. Each compute thread flushes denormals.
void parallel_for(int64_t tasks, FunctionRef<void(int64_t)> task);

// Calls task(begin, end) for consecutive ranges of at most `chunk` that cover [0, n).
void parallel_ranges(int64_t n, int64_t chunk, FunctionRef<void(int64_t, int64_t)> task);

// Sets flush-to-zero and denormals-are-zero for the calling thread.
void flush_denormals();

}  // namespace strata
