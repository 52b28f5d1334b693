// Shared by the measurements of a GPU (facts_main.cpp).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "hardware/card.h"
#include "hardware/fact_kernels.h"

namespace strata::gpu_tests::facts {

using cuda::Pointer;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
inline constexpr size_t kKiB = 1024;

// Sizes and loops, reduced without a GPU.
struct Scale {
  explicit Scale(size_t by) : divisor(by) {}
  size_t divisor;
  size_t mib = std::max<size_t>(kKiB * 1024 / divisor, 4096);
  size_t gib = 1024 * mib;
  uint64_t clocks = 10'000'000 / divisor;
  uint32_t loops(uint32_t count) const {
    return std::max<uint32_t>(count / static_cast<uint32_t>(divisor), 1);
  }
};

inline const cuda::Driver& driver() {
  return *gpu_tests::card().driver;
}
inline void check(cuda::Result result, const char* what) {
  driver().check(result, what);
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

inline double host_us(const std::function<void()>& function) {
  const auto begin = Clock::now();
  function();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

class Stream {
 public:
  Stream() { check(driver().create_stream(&handle_, cuda::kNonBlockingStream), "cuStreamCreate"); }
  ~Stream() { driver().destroy_stream(handle_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cuda::Stream() const { return handle_; }
  void wait() const { check(driver().synchronize_stream(handle_), "cuStreamSynchronize"); }

 private:
  cuda::Stream handle_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cuda::kEventWithTiming) {
    check(driver().create_event(&handle_, flags), "cuEventCreate");
  }
  ~Event() { driver().destroy_event(handle_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cuda::Event() const { return handle_; }
  void record(const Stream& stream) const { check(driver().record_event(handle_, stream), "cuEventRecord"); }

 private:
  cuda::Event handle_ = nullptr;
};

class Memory {
 public:
  explicit Memory(size_t bytes) { check(driver().allocate(&address_, bytes), "cuMemAlloc"); }
  ~Memory() { driver().free(address_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  operator Pointer() const { return address_; }

 private:
  Pointer address_ = 0;
};

class Pinned {
 public:
  explicit Pinned(size_t bytes) {
    check(driver().allocate_host(&memory_, bytes, 0), "cuMemHostAlloc");
    std::memset(memory_, 1, bytes);
  }
  ~Pinned() { driver().free_host(memory_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  operator void*() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

// Loads a module from PTX text or a cubin.
inline cuda::Module load(const std::string& image) {
  cuda::Module module = nullptr;
  std::vector<char> log(4096);
  cuda::JitOption names[] = {cuda::kErrorLog, cuda::kErrorLogBytes};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  const cuda::Result result = driver().load_module(&module, image.c_str(), 2, names, values);
  if (result != cuda::kSuccess && log[0] != '\0') throw std::runtime_error(log.data());
  check(result, "cuModuleLoadDataEx");
  return module;
}
inline cuda::Function function(cuda::Module module, const char* name) {
  cuda::Function found = nullptr;
  check(driver().function(&found, module, name), "cuModuleGetFunction");
  return found;
}

template <typename... P>
void launch(cuda::Function kernel, unsigned grid, unsigned block, const Stream& stream, P... params) {
  void* arguments[] = {static_cast<void*>(&params)..., nullptr};
  check(driver().launch(kernel, grid, 1, 1, block, 1, 1, 0, stream, arguments, nullptr), "cuLaunchKernel");
}

// Microseconds per call on a stream, between events: the median of `samples` runs of enough calls.
inline double device_us(const Stream& stream, const std::function<void(int)>& enqueue,
                        double at_most_us = 4000, int samples = 5) {
  const Event begin, end;
  const auto run = [&](int calls) {
    begin.record(stream);
    for (int n = 0; n < calls; ++n) enqueue(n);
    end.record(stream);
    stream.wait();
    float milliseconds = 0;
    check(driver().elapsed(&milliseconds, begin, end), "cuEventElapsedTime");
    return static_cast<double>(milliseconds) * 1000 / calls;
  };
  run(2);
  const int calls = static_cast<int>(std::clamp(at_most_us / std::max(run(2), 0.1), 1.0, 200.0));
  std::vector<double> times;
  for (int n = 0; n < samples; ++n) times.push_back(run(calls));
  return median(times);
}

inline double gigabytes(size_t bytes, double us) {
  return static_cast<double>(bytes) / us / 1000;
}

struct Kernels {
  Kernels()
      : module(load(std::string(kFactHead) + kEmptyKernel + kCopyKernel + kSpinKernel + kChaseKernel)),
        nothing(function(module, "nothing")),
        nothing256(function(module, "nothing256")),
        copy16(function(module, "copy16")),
        spin(function(module, "spin")),
        chase(function(module, "chase")) {}
  cuda::Module module;
  cuda::Function nothing, nothing256, copy16, spin, chase;
};

// The sections of facts.json; "method" describes each measurement.
Json launches(const Scale& scale);
Json clocks_and_latency(const Scale& scale);
Json arithmetic(const Scale& scale);
Json concurrency(const Scale& scale);
Json device_copies(const Scale& scale);
Json host_copies(const Scale& scale);
Json allocation(const Scale& scale);

}  // namespace strata::gpu_tests::facts
