// Data parallelism of one process: the only place that starts compute threads. OpenMP's pool carries it,
// because oneDNN uses the same one; under the thread sanitizer plain threads do.
#pragma once

#include <cstdint>

#include "base/function_ref.h"

namespace strata {

// Threads that parallel_for of the calling thread uses. Every thread that owns a rank sets its own.
int compute_threads();
void set_compute_threads(int threads);

// Processors that this process may use.
int available_processors();

// Calls task(thread) once on each compute thread at the same time, threads counted from 0. Not to be nested.
void on_each_thread(FunctionRef<void(int)> task);

// Calls task(i) once for every i in [0, tasks), on all compute threads, in no set order. Results must not
// depend on which thread runs a task: split work by size, never by thread count. The first exception is
// rethrown here. Nested calls run on the calling thread. Each compute thread flushes denormals.
void parallel_for(int64_t tasks, FunctionRef<void(int64_t)> task);

// Calls task(begin, end) for consecutive ranges of at most `grain` that cover [0, n).
void parallel_ranges(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> task);

// Sets flush-to-zero and denormals-are-zero for the calling thread.
void flush_denormals();

}  // namespace strata
