#include "base/parallel.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#ifndef STRATA_PLAIN_THREADS
#include <omp.h>
#endif

#include "base/control_group.h"

namespace strata {

ProcessorLimit processor_limit() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = sched_getaffinity(0, sizeof set, &set) == 0;
  ProcessorLimit limit;
  limit.processors =
      std::max(1, known ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency()));
  if (limit.processors < static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)))
    limit.source = "the processors that this process is bound to";
  const auto lower = [&](int64_t processors, const std::string& source) {
    if (processors < 1 || processors >= limit.processors) return;
    limit = {static_cast<int>(processors), source};
  };
  if (const auto& quota = cpu_quota()) {
    lower(quota->threads(),
          fmt::format("a CPU quota of {:.4g} in {}", quota->processors, quota->source.string()));
  }
  // A list has a number for each level of nesting; the first applies here.
  if (const char* wanted = std::getenv("OMP_NUM_THREADS"))
    lower(std::strtol(wanted, nullptr, 10), fmt::format("OMP_NUM_THREADS={}", wanted));
  return limit;
}

int available_processors() {
  return processor_limit().processors;
}

void keep_to_cpu_quota() {
  const auto& quota = cpu_quota();
  if (quota && compute_threads() > quota->threads()) set_compute_threads(quota->threads());
}

void flush_denormals() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);  // FTZ and DAZ
#elif defined(__aarch64__)
  uint64_t fpcr = 0;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  asm volatile("msr fpcr, %0" ::"r"(fpcr | (uint64_t{1} << 24)));
#endif
}

namespace {

// Keeps the first exception of a parallel region for the caller.
class FirstError {
 public:
  void run(FunctionRef<void(int64_t)> task, int64_t i) noexcept {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      task(i);
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_.store(true, std::memory_order_relaxed);
    }
  }
  void rethrow() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

#ifdef STRATA_PLAIN_THREADS

namespace {
thread_local int plain_threads = 0;
thread_local bool inside = false;
}  // namespace

int compute_threads() {
  return plain_threads > 0 ? plain_threads : available_processors();
}
void set_compute_threads(int threads) {
  plain_threads = std::max(1, threads);
}

void parallel_for(int64_t tasks, FunctionRef<void(int64_t)> task) {
  const int threads = static_cast<int>(std::min<int64_t>(compute_threads(), tasks));
  FirstError first;
  if (threads <= 1 || inside) {
    for (int64_t i = 0; i < tasks; ++i) first.run(task, i);
  } else {
    std::atomic<int64_t> next{0};
    auto work = [&] {
      const bool was_inside = std::exchange(inside, true);
      flush_denormals();
      for (int64_t i = next++; i < tasks; i = next++) first.run(task, i);
      inside = was_inside;
    };
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(work);
    work();
    for (auto& other : others) other.join();
  }
  first.rethrow();
}

// Its threads end with each call: there is none to speak to but this one.
void on_each_thread(FunctionRef<void(int)> task) {
  task(0);
}

#else

int compute_threads() {
  return omp_get_max_threads();
}
void set_compute_threads(int threads) {
  omp_set_num_threads(std::max(1, threads));
}

void parallel_for(int64_t tasks, FunctionRef<void(int64_t)> task) {
  FirstError first;
  if (tasks <= 1 || omp_in_parallel() || omp_get_max_threads() == 1) {
    for (int64_t i = 0; i < tasks; ++i) first.run(task, i);
  } else {
#pragma omp parallel
    {
      flush_denormals();
#pragma omp for schedule(dynamic, 1)
      for (int64_t i = 0; i < tasks; ++i) first.run(task, i);
    }
  }
  first.rethrow();
}

void on_each_thread(FunctionRef<void(int)> task) {
  FirstError first;
#pragma omp parallel
  first.run([&](int64_t thread) { task(static_cast<int>(thread)); }, omp_get_thread_num());
  first.rethrow();
}

#endif

void parallel_ranges(int64_t n, int64_t chunk, FunctionRef<void(int64_t, int64_t)> task) {
  const int64_t step = std::max<int64_t>(1, chunk);
  parallel_for((n + step - 1) / step, [&](int64_t i) { task(i * step, std::min(n, (i + 1) * step)); });
}

}  // namespace strata
