// gpu_facts FOLDER [KERNELS [DIVISOR]]: measures a card and its driver; writes FOLDER/facts.json after every
// section. KERNELS has PTX and cubins of tests/gpu/kernels/samples.cu, whose loading is timed. Sizes and
// loops are divided by DIVISOR, to try the program without a card.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "hardware/driver.h"
#include "hardware/fact_kernels.h"

namespace strata::gpu_tests {
namespace {

using cuda::Pointer;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
constexpr size_t kKiB = 1024;

// Sizes and loops, smaller where there is no card.
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

const cuda::Driver& driver() {
  return *cuda::card().driver;
}
void check(cuda::Result result, const char* what) {
  driver().check(result, what);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double host_us(const std::function<void()>& function) {
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

// Loads a module, a PTX text or a cubin.
cuda::Module load(const std::string& image) {
  cuda::Module module = nullptr;
  std::vector<char> log(4096);
  cuda::JitOption names[] = {cuda::kErrorLog, cuda::kErrorLogBytes};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  const cuda::Result result = driver().load_module(&module, image.c_str(), 2, names, values);
  if (result != cuda::kSuccess && log[0] != '\0') throw std::runtime_error(log.data());
  check(result, "cuModuleLoadDataEx");
  return module;
}
cuda::Function function(cuda::Module module, const char* name) {
  cuda::Function found = nullptr;
  check(driver().function(&found, module, name), "cuModuleGetFunction");
  return found;
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

template <typename... P>
void launch(cuda::Function kernel, unsigned grid, unsigned block, const Stream& stream, P... params) {
  void* arguments[] = {static_cast<void*>(&params)..., nullptr};
  check(driver().launch(kernel, grid, 1, 1, block, 1, 1, 0, stream, arguments, nullptr), "cuLaunchKernel");
}

// Microseconds of one call on the stream, between events: the median of `samples` runs of enough calls.
double device_us(const Stream& stream, const std::function<void(int)>& enqueue, double at_most_us = 4000,
                 int samples = 5) {
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

double gigabytes(size_t bytes, double us) {
  return static_cast<double>(bytes) / us / 1000;
}

Json attributes() {
  const std::pair<const char*, int> kNames[] = {
      {"multiprocessors", 16},
      {"clock_khz", 13},
      {"memory_clock_khz", 36},
      {"memory_bus_bits", 37},
      {"l2_bytes", 38},
      {"persisting_l2_bytes", 108},
      {"max_threads_per_block", 1},
      {"max_threads_per_multiprocessor", 39},
      {"max_blocks_per_multiprocessor", 106},
      {"registers_per_block", 12},
      {"registers_per_multiprocessor", 82},
      {"shared_bytes_per_block", 8},
      {"shared_bytes_per_block_opt_in", 97},
      {"shared_bytes_per_multiprocessor", 81},
      {"reserved_shared_bytes_per_block", 111},
      {"constant_bytes", 9},
      {"copy_engines", 40},
      {"concurrent_kernels", 31},
      {"unified_addressing", 41},
      {"managed_memory", 83},
      {"concurrent_managed_access", 89},
      {"pageable_memory_access", 88},
      {"host_register", 99},
      {"cooperative_launch", 95},
      {"cluster_launch", 120},
      {"tensor_maps", 127},
      {"memory_pools", 115},
      {"multicast", 132},
      {"ecc", 32},
      {"compute_mode", 20},
      {"stream_priorities", 78},
      {"gpu_direct_rdma", 116},
      {"single_to_double_ratio", 87},
      {"numa_node_of_host", 134},
  };
  const cuda::Card& card = cuda::card();
  Json json;
  int version = 0;
  size_t free = 0, total = 0;
  check(driver().driver_version(&version), "cuDriverGetVersion");
  check(driver().memory_info(&free, &total), "cuMemGetInfo");
  json["name"] = card.name;
  json["capability"] = card.capability;
  json["driver_version"] = version;
  json["memory_bytes"] = total;
  json["memory_free_bytes"] = free;
  for (const auto& [name, number] : kNames) json[name] = card.attribute(number);
  return json;
}

Json launches(const Scale& scale) {
  const Kernels kernels;
  const Stream stream, other;
  const Memory out(4096);
  struct {
    char all[256] = {};
  } params;
  const auto back_to_back = [&](const std::function<void()>& one, uint32_t calls) {
    const uint32_t count = scale.loops(calls);
    one();
    stream.wait();
    std::vector<double> enqueue, whole;
    for (int n = 0; n < 7; ++n) {
      double queued = 0;
      whole.push_back(host_us([&] {
                        queued = host_us([&] {
                          for (uint32_t k = 0; k < count; ++k) one();
                        });
                        stream.wait();
                      }) /
                      count);
      enqueue.push_back(queued / count);
    }
    return Json{{"host_us", median(enqueue)}, {"end_to_end_us", median(whole)}};
  };
  const auto one_by_one = [&](const std::function<void()>& one) {
    std::vector<double> times;
    for (int n = 0; n < 300; ++n) times.push_back(host_us(one));
    return median(times);
  };
  Json json;
  json["method"] =
      "host clock; 'back to back': calls without a wait, per call, while they are enqueued and until all "
      "have run";
  json["empty_back_to_back_500"] = back_to_back([&] { launch(kernels.nothing, 1, 32, stream); }, 500);
  json["empty_132_blocks_back_to_back_500"] =
      back_to_back([&] { launch(kernels.nothing, 132, 1024, stream); }, 500);
  json["256_bytes_of_parameters_back_to_back_500"] =
      back_to_back([&] { launch(kernels.nothing256, 1, 32, stream, params); }, 500);
  json["empty_back_to_back_5000"] = back_to_back([&] { launch(kernels.nothing, 1, 32, stream); }, 5000);
  json["empty_and_wait_us"] = one_by_one([&] {
    launch(kernels.nothing, 1, 32, stream);
    stream.wait();
  });
  json["wait_of_an_idle_stream_us"] = one_by_one([&] { stream.wait(); });
  const Event plain(cuda::kEventWithoutTiming), timed;
  json["event_record_back_to_back_500"] = back_to_back([&] { plain.record(stream); }, 500);
  json["timed_event_record_back_to_back_500"] = back_to_back([&] { timed.record(stream); }, 500);
  json["kernel_and_event_back_to_back_500"] = back_to_back(
      [&] {
        launch(kernels.nothing, 1, 32, stream);
        plain.record(stream);
      },
      500);
  // A kernel on each of two streams in turn, each after the other's.
  const Event first(cuda::kEventWithoutTiming), second(cuda::kEventWithoutTiming);
  json["ping_pong_of_two_streams_200"] = back_to_back(
      [&] {
        launch(kernels.nothing, 1, 32, stream);
        first.record(stream);
        check(driver().wait_event(other, first, 0), "cuStreamWaitEvent");
        launch(kernels.nothing, 1, 32, other);
        second.record(other);
        check(driver().wait_event(stream, second, 0), "cuStreamWaitEvent");
      },
      200);
  json["event_record_and_wait_of_host_us"] = one_by_one([&] {
    launch(kernels.nothing, 1, 32, stream);
    plain.record(stream);
    check(driver().synchronize_event(plain), "cuEventSynchronize");
  });
  json["create_and_destroy_event_us"] = one_by_one([] { const Event event; });
  json["create_and_destroy_stream_us"] = one_by_one([] { const Stream one; });
  json["fill_4_bytes_back_to_back_500"] =
      back_to_back([&] { check(driver().fill_async(out, 0, 4, stream), "cuMemsetD8Async"); }, 500);
  json["copy_4_bytes_on_device_back_to_back_500"] =
      back_to_back([&] { check(driver().copy_async(out, out + 64, 4, stream), "cuMemcpyDtoDAsync"); }, 500);
  return json;
}

Json clocks_and_latency(const Scale& scale) {
  const Kernels kernels;
  const Stream stream;
  const Memory out(4096);
  Json json;
  uint64_t measured[2] = {};
  for (int n = 0; n < 3; ++n) launch(kernels.spin, 1, 1, stream, Pointer{out}, 5 * scale.clocks);
  stream.wait();
  check(driver().copy_to_host(measured, out, sizeof measured), "cuMemcpyDtoH");
  json["method"] =
      "spin: clock64 against globaltimer in one thread; latency: a chain of pointers, random order, past L1";
  json["clock_mhz_under_light_load"] =
      static_cast<double>(measured[0]) * 1000 / static_cast<double>(std::max<uint64_t>(measured[1], 1));
  json["load_latency_clocks"] = Json::array();
  for (const size_t bytes : {scale.mib, 16 * scale.mib, 40 * scale.mib, 512 * scale.mib}) {
    const Memory chain(bytes);
    constexpr size_t kLine = 256;
    std::vector<uint32_t> order(bytes / kLine);
    std::iota(order.begin(), order.end(), 0u);
    std::mt19937 random(1);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<uint64_t> memory(bytes / 8);
    for (size_t n = 0; n < order.size(); ++n)
      memory[order[n] * kLine / 8] = Pointer{chain} + order[(n + 1) % order.size()] * kLine;
    check(driver().copy_to_device(chain, memory.data(), bytes), "cuMemcpyHtoD");
    const auto steps = scale.loops(20000);
    for (int n = 0; n < 2; ++n)
      launch(kernels.chase, 1, 1, stream, Pointer{out}, Pointer{chain} + order[0] * kLine, steps);
    stream.wait();
    check(driver().copy_to_host(measured, out, 8), "cuMemcpyDtoH");
    json["load_latency_clocks"].push_back(
        {{"bytes", bytes}, {"clocks", static_cast<double>(measured[0]) / steps}});
  }
  return json;
}

Json device_copies(const Scale& scale) {
  const Kernels kernels;
  const Stream stream;
  const Memory from(scale.gib), to(scale.gib);
  check(driver().fill_async(from, 1, scale.gib, stream), "cuMemsetD8Async");
  check(driver().fill_async(to, 2, scale.gib, stream), "cuMemsetD8Async");
  const auto blocks = static_cast<unsigned>(cuda::card().attribute(16) * 8);
  Json json;
  json["method"] =
      "events around repeated copies of one buffer pair, median of 5; GB/s counts bytes read and written "
      "(fill: written); "
      "'rotated' walks through 1 GiB so that small sizes come from memory, not L2";
  json["sizes"] = Json::array();
  for (size_t bytes = 4 * kKiB; bytes <= scale.gib; bytes *= 4) {
    const uint64_t places = scale.gib / bytes, vectors = bytes / 16;
    const auto grid = static_cast<unsigned>(std::min<uint64_t>(blocks, (vectors + 255) / 256));
    const double copy = device_us(
        stream, [&](int) { check(driver().copy_async(to, from, bytes, stream), "cuMemcpyDtoDAsync"); });
    const double rotated = device_us(stream, [&](int n) {
      const uint64_t at = static_cast<uint64_t>(n) % places * bytes;
      check(driver().copy_async(to + at, from + at, bytes, stream), "cuMemcpyDtoDAsync");
    });
    const double kernel = device_us(
        stream, [&](int) { launch(kernels.copy16, grid, 256, stream, Pointer{to}, Pointer{from}, vectors); });
    const double fill =
        device_us(stream, [&](int) { check(driver().fill_async(to, 3, bytes, stream), "cuMemsetD8Async"); });
    json["sizes"].push_back({{"bytes", bytes},
                             {"copy_us", copy},
                             {"copy_gb_s", gigabytes(2 * bytes, copy)},
                             {"rotated_copy_us", rotated},
                             {"rotated_copy_gb_s", gigabytes(2 * bytes, rotated)},
                             {"kernel_us", kernel},
                             {"kernel_gb_s", gigabytes(2 * bytes, kernel)},
                             {"fill_us", fill},
                             {"fill_gb_s", gigabytes(bytes, fill)}});
  }
  return json;
}

Json arithmetic(const Scale& scale) {
  const Stream stream;
  const Memory out(4096);
  const auto processors = static_cast<unsigned>(cuda::card().attribute(16));
  Json json;
  json["method"] =
      "a loop of eight independent instructions in 16 warps a multiprocessor, events, median of 3; mma on "
      "values that differ by lane";
  const auto measure = [&](const char* name, const std::string& one, double operations, uint32_t rounds) {
    std::string instructions;
    for (int n = 0; n < 8; ++n) {
      instructions += fmt::format(fmt::runtime(one), n * 4, n * 4 + 1, n * 4 + 2, n * 4 + 3);
      instructions += '\n';
    }
    const cuda::Module module = load(kFactHead + loop_kernel("loop", instructions));
    const cuda::Function kernel = function(module, "loop");
    const double us = device_us(
        stream, [&](int) { launch(kernel, processors * 2, 256, stream, Pointer{out}, scale.loops(rounds)); },
        30000, 3);
    const double warps = processors * 2.0 * 8, done = warps * 8 * scale.loops(rounds);
    json[name] = {{"tera_operations_s", done * operations / us / 1e6},
                  {"warp_instructions_s_per_multiprocessor", done / us * 1e6 / processors}};
    check(driver().unload_module(module), "cuModuleUnload");
  };
  const std::string quad = "{{%f{0}, %f{1}, %f{2}, %f{3}}}";
  measure("mma_m16n8k16_bf16",
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 " + quad +
              ", {{%r1, %r2, %r3, %r4}}, {{%r5, %r6}}, " + quad + ";",
          2 * 16 * 8 * 16, 20000);
  measure("mma_m16n8k16_f16",
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 " + quad +
              ", {{%r1, %r2, %r3, %r4}}, {{%r5, %r6}}, " + quad + ";",
          2 * 16 * 8 * 16, 20000);
  measure("mma_m16n8k8_tf32",
          "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 " + quad +
              ", {{%r1, %r2, %r3, %r4}}, {{%r5, %r6}}, " + quad + ";",
          2 * 16 * 8 * 8, 20000);
  measure("fma_f32", "fma.rn.f32 %f{0}, %f{0}, %f32, %f33;", 64, 50000);
  measure("ex2_f32", "ex2.approx.f32 %f{0}, %f{0};", 32, 20000);
  return json;
}

Json host_copies(const Scale& scale) {
  const Stream stream, other;
  const size_t most = 256 * scale.mib;
  const Memory device(most), device2(most);
  const Pinned pinned(most), pinned2(most);
  std::vector<char> pageable(64 * scale.mib, 1);
  const auto in = [&](const Stream& on, Pointer to, const void* from, size_t bytes) {
    check(driver().copy_to_device_async(to, from, bytes, on), "cuMemcpyHtoDAsync");
  };
  const auto out = [&](const Stream& on, void* to, Pointer from, size_t bytes) {
    check(driver().copy_to_host_async(to, from, bytes, on), "cuMemcpyDtoHAsync");
  };
  const auto and_wait = [&](const std::function<void()>& one) {
    std::vector<double> times;
    for (int n = 0; n < 30; ++n) {
      times.push_back(host_us([&] {
        one();
        stream.wait();
      }));
    }
    return median(times);
  };
  Json json;
  json["method"] =
      "events around repeated copies, median of 5; '_and_wait_us': host clock of one copy and a wait, median "
      "of 30; pinned memory";
  json["sizes"] = Json::array();
  for (size_t bytes = 4; bytes <= most; bytes *= bytes < 4 * kKiB ? 32 : 4) {
    Json one{{"bytes", bytes}};
    const double to_device = device_us(
        stream, [&](int) { in(stream, device, pinned, bytes); }, 20000, 3);
    const double to_host = device_us(
        stream, [&](int) { out(stream, pinned, device, bytes); }, 20000, 3);
    one["to_device_us"] = to_device;
    one["to_device_gb_s"] = gigabytes(bytes, to_device);
    one["to_host_us"] = to_host;
    one["to_host_gb_s"] = gigabytes(bytes, to_host);
    if (bytes <= 4 * scale.mib) {
      one["to_device_and_wait_us"] = and_wait([&] { in(stream, device, pinned, bytes); });
      one["to_host_and_wait_us"] = and_wait([&] { out(stream, pinned, device, bytes); });
    }
    if (bytes >= scale.mib && bytes <= pageable.size()) {
      const double pageable_in = device_us(
          stream, [&](int) { in(stream, device, pageable.data(), bytes); }, 20000, 3);
      const double pageable_out = device_us(
          stream, [&](int) { out(stream, pageable.data(), device, bytes); }, 20000, 3);
      one["pageable_to_device_gb_s"] = gigabytes(bytes, pageable_in);
      one["pageable_to_host_gb_s"] = gigabytes(bytes, pageable_out);
    }
    json["sizes"].push_back(one);
  }
  // Both directions at the same time.
  std::vector<double> times;
  for (int n = 0; n < 5; ++n) {
    times.push_back(host_us([&] {
      for (int k = 0; k < 4; ++k) {
        in(stream, device, pinned, 64 * scale.mib);
        out(other, pinned2, device2, 64 * scale.mib);
      }
      stream.wait();
      other.wait();
    }));
  }
  json["both_directions_gb_s"] = gigabytes(8 * 64 * scale.mib, median(times));
  return json;
}

std::string file_text(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Json loading(const std::string& folder) {
  Json json;
  json["method"] =
      "host clock of cuModuleLoadDataEx and then cuModuleGetFunction, median of 5; the driver's own cache "
      "counts unless "
      "CUDA_CACHE_DISABLE=1";
  const auto time = [&](const std::string& name, const std::string& image, const char* kernel) {
    if (image.empty()) return;
    try {
      std::vector<double> loads, functions, unloads;
      for (int n = 0; n < 5; ++n) {
        cuda::Module module = nullptr;
        loads.push_back(host_us([&] { module = load(image); }));
        functions.push_back(host_us([&] { function(module, kernel); }));
        unloads.push_back(host_us([&] { check(driver().unload_module(module), "cuModuleUnload"); }));
      }
      json[name] = {{"bytes", image.size()},
                    {"load_us", median(loads)},
                    {"function_us", median(functions)},
                    {"unload_us", median(unloads)}};
    } catch (const std::exception& error) {
      json[name] = {{"error", error.what()}};
    }
  };
  time("empty_kernel_ptx", std::string(kFactHead) + kEmptyKernel, "nothing");
  time("copy_kernel_ptx", std::string(kFactHead) + kCopyKernel, "copy16");
  for (const char* name :
       {"samples_sm_80.ptx", "samples_sm_90a.ptx", "samples_sm_80.cubin", "samples_sm_90a.cubin"})
    time(name, file_text(folder + "/" + name), "gemm_bf16");
  return json;
}

Json allocation(const Scale& scale) {
  const Stream stream;
  Json json;
  json["method"] = "host clock, median of 9 (of 3 from 256 MiB); 'pool': cuMemAllocAsync, warm";
  json["sizes"] = Json::array();
  for (const size_t bytes :
       {size_t{256}, 4 * kKiB, scale.mib, 2 * scale.mib, 32 * scale.mib, 256 * scale.mib, 4 * scale.gib}) {
    const int samples = bytes < 256 * scale.mib ? 9 : 3;
    std::vector<double> allocate, free, pool, pool_free, pin, unpin;
    for (int n = 0; n < samples; ++n) {
      Pointer address = 0;
      allocate.push_back(host_us([&] { check(driver().allocate(&address, bytes), "cuMemAlloc"); }));
      free.push_back(host_us([&] { check(driver().free(address), "cuMemFree"); }));
      pool.push_back(
          host_us([&] { check(driver().allocate_async(&address, bytes, stream), "cuMemAllocAsync"); }));
      pool_free.push_back(host_us([&] { check(driver().free_async(address, stream), "cuMemFreeAsync"); }));
      if (bytes > scale.gib) continue;
      void* memory = nullptr;
      pin.push_back(host_us([&] { check(driver().allocate_host(&memory, bytes, 0), "cuMemHostAlloc"); }));
      unpin.push_back(host_us([&] { check(driver().free_host(memory), "cuMemFreeHost"); }));
    }
    stream.wait();
    Json one{{"bytes", bytes},
             {"allocate_us", median(allocate)},
             {"free_us", median(free)},
             {"pool_allocate_us", median(pool)},
             {"pool_free_us", median(pool_free)}};
    if (!pin.empty()) {
      one["pin_us"] = median(pin);
      one["unpin_us"] = median(unpin);
    }
    json["sizes"].push_back(one);
  }
  return json;
}

Json concurrency(const Scale& scale) {
  const Kernels kernels;
  const Stream first, second, third;
  const Memory from(512 * scale.mib), to(512 * scale.mib), staged(256 * scale.mib), out(4096);
  const Pinned pinned(256 * scale.mib), pinned2(256 * scale.mib);
  const auto spin = [&](const Stream& stream) {
    launch(kernels.spin, 1, 32, stream, Pointer{out}, scale.clocks);
  };
  const auto copy_kernels = [&](const Stream& stream) {
    for (int n = 0; n < 12; ++n)
      launch(kernels.copy16, 1056, 256, stream, Pointer{to}, Pointer{from}, 512 * scale.mib / 16);
  };
  const auto in = [&](const Stream& stream) {
    check(driver().copy_to_device_async(staged, pinned, 256 * scale.mib, stream), "cuMemcpyHtoDAsync");
  };
  const auto out_copy = [&](const Stream& stream) {
    check(driver().copy_to_host_async(pinned2, to, 256 * scale.mib, stream), "cuMemcpyDtoHAsync");
  };
  const auto time = [&](const std::vector<std::function<void()>>& work) {
    std::vector<double> times;
    for (int n = 0; n < 3; ++n) {
      times.push_back(host_us([&] {
        for (const auto& one : work) one();
        first.wait();
        second.wait();
        third.wait();
      }));
    }
    return median(times);
  };
  Json json;
  json["method"] =
      "host clock of the work on separate streams and a wait for all, median of 3. spin: one warp for 10^7 "
      "clocks; memory kernels: 12 "
      "copies of 512 MiB; copies: 256 MiB of pinned memory";
  json["spin_us"] = time({[&] { spin(first); }});
  json["two_spins_us"] = time({[&] { spin(first); }, [&] { spin(second); }});
  json["memory_kernels_us"] = time({[&] { copy_kernels(first); }});
  json["copy_in_us"] = time({[&] { in(second); }});
  json["copy_out_us"] = time({[&] { out_copy(third); }});
  json["spin_and_copy_in_us"] = time({[&] { spin(first); }, [&] { in(second); }});
  json["memory_kernels_and_copy_in_us"] = time({[&] { copy_kernels(first); }, [&] { in(second); }});
  json["memory_kernels_and_copy_out_us"] = time({[&] { copy_kernels(first); }, [&] { out_copy(third); }});
  json["copy_in_and_copy_out_us"] = time({[&] { in(second); }, [&] { out_copy(third); }});
  json["all_three_us"] = time({[&] { copy_kernels(first); }, [&] { in(second); }, [&] { out_copy(third); }});
  // Time of the memory kernels themselves while a copy runs.
  const Event begin, end;
  in(second);
  begin.record(first);
  copy_kernels(first);
  end.record(first);
  first.wait();
  second.wait();
  float milliseconds = 0;
  check(driver().elapsed(&milliseconds, begin, end), "cuEventElapsedTime");
  json["memory_kernels_during_copy_in_us"] = milliseconds * 1000;
  return json;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.size() > 3) {
    fmt::print(stderr, "usage: gpu_facts FOLDER [KERNELS [DIVISOR]]\n");
    return 2;
  }
  const Scale scale(arguments.size() > 2 ? std::stoul(arguments[2]) : 1);
  const double open_us = host_us([] { cuda::card().use(); });
  Json all;
  all["open_driver_and_context_us"] = open_us;
  int result = 0;
  const std::string file = arguments[0] + "/facts.json";
  const auto section = [&](const char* name, const std::function<Json()>& measure) {
    double us = 0;
    try {
      us = host_us([&] { all[name] = measure(); });
      all[name]["seconds"] = us / 1e6;
      fmt::print("{}: {:.1f} s\n", name, us / 1e6);
    } catch (const std::exception& error) {
      all[name] = {{"error", error.what()}};
      fmt::print("{}: {}\n", name, error.what());
      result = 1;
    }
    std::fflush(stdout);
    std::ofstream(file) << all.dump(1) << '\n';
  };
  section("card", attributes);
  section("launches", [&] { return launches(scale); });
  section("clocks_and_latency", [&] { return clocks_and_latency(scale); });
  section("device_copies", [&] { return device_copies(scale); });
  section("arithmetic", [&] { return arithmetic(scale); });
  section("host_copies", [&] { return host_copies(scale); });
  section("loading", [&] { return loading(arguments.size() > 1 ? arguments[1] : "."); });
  section("allocation", [&] { return allocation(scale); });
  section("concurrency", [&] { return concurrency(scale); });
  return result;
}

}  // namespace
}  // namespace strata::gpu_tests

int main(int argc, char** argv) {
  try {
    return strata::gpu_tests::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_facts: {}\n", error.what());
    return 1;
  }
}
