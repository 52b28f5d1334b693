// The twin rejects the same calls as the driver, with the numbers of cuda.h and of the CUDA Driver API's documentation.
#include <array>
#include <thread>

#include "twin/harness.h"

namespace strata::gpu_tests {
namespace {

using cuda::Pointer;
using cuda::Result;

constexpr Result kInvalidValue = 1, kNotInitialized = 3, kInvalidDevice = 101, kInvalidContext = 201,
                 kInvalidHandle = 400, kNotFound = 500, kIllegalAddress = 700, kMisaligned = 716,
                 kLaunchFailed = 719;

TEST(TwinRejects, CallsBeforeInitAndWithoutAContext) {
  const Twin twin;
  twin.restart();
  const cuda::Driver& d = driver();
  int number = 0;
  Pointer address = 0;
  cuda::Context context = nullptr;
  EXPECT_EQ(d.device_count(&number), kNotInitialized);
  EXPECT_EQ(d.allocate(&address, 4), kNotInitialized);
  EXPECT_EQ(d.driver_version(&number), cuda::kSuccess) << "allowed before cuInit";
  EXPECT_EQ(d.init(1), kInvalidValue);
  EXPECT_EQ(d.init(0), cuda::kSuccess);
  EXPECT_EQ(d.allocate(&address, 4), kInvalidContext);
  EXPECT_EQ(d.synchronize(), kInvalidContext);
  cuda::DeviceOrdinal device = 0;
  for (const int ordinal : {-1, 1, 99}) EXPECT_EQ(d.device(&device, ordinal), kInvalidDevice);
  EXPECT_EQ(d.retain_context(&context, 7), kInvalidDevice);
  ASSERT_EQ(d.retain_context(&context, 0), cuda::kSuccess);
  EXPECT_EQ(d.set_context(reinterpret_cast<cuda::Context>(&number)), kInvalidContext);
  EXPECT_EQ(d.set_context(context), cuda::kSuccess);
  EXPECT_EQ(d.allocate(&address, 4), cuda::kSuccess);
  std::thread([&] { EXPECT_EQ(d.free(address), kInvalidContext); }).join();  // each thread has its own
  EXPECT_EQ(d.free(address), cuda::kSuccess);
}

TEST(TwinRejects, HandlesOfAnotherGpuAndOfBeforeARestart) {
  const TwinCard first("cards=2");
  const Pointer address = first.allocate(64);
  const cuda::Stream stream = first.stream();
  const cuda::Card second = cuda::open_card(1);
  second.use();
  EXPECT_EQ(driver().free(address), kInvalidValue);
  EXPECT_EQ(driver().synchronize_stream(stream), kInvalidHandle);
  std::array<unsigned char, 16> a{}, b{};
  EXPECT_EQ(driver().device_uuid(a.data(), 0), cuda::kSuccess);
  EXPECT_EQ(driver().device_uuid(b.data(), 1), cuda::kSuccess);
  EXPECT_NE(a, b);
  char bus[16];
  EXPECT_EQ(driver().device_bus_id(bus, sizeof bus, 1), cuda::kSuccess);
  EXPECT_STREQ(bus, "0000:02:00.0");
  EXPECT_EQ(driver().device_bus_id(bus, 4, 1), kInvalidValue);
  first.twin().restart();
  EXPECT_EQ(driver().init(0), cuda::kSuccess);
  EXPECT_EQ(driver().set_context(second.context), kInvalidContext);
}

TEST(TwinRejects, Allocations) {
  const TwinCard one("memory=64MiB;held=16MiB");
  const cuda::Driver& d = driver();
  size_t free = 0, total = 0;
  Pointer address = 0;
  EXPECT_EQ(d.memory_info(&free, &total), cuda::kSuccess);
  EXPECT_EQ(free, size_t{48} << 20);
  EXPECT_EQ(total, size_t{64} << 20);
  EXPECT_EQ(d.allocate(&address, 0), kInvalidValue);
  EXPECT_EQ(d.allocate(&address, free + 1), cuda::kOutOfMemory);
  EXPECT_EQ(d.allocate(&address, free), cuda::kSuccess);
  EXPECT_EQ(d.memory_info(&free, &total), cuda::kSuccess);
  EXPECT_EQ(free, 0u);
  EXPECT_EQ(d.free(address + 256), kInvalidValue);
  EXPECT_EQ(d.free(address), cuda::kSuccess);
  EXPECT_EQ(d.free(address), kInvalidValue) << "twice";
  EXPECT_EQ(d.memory_info(&free, &total), cuda::kSuccess);
  EXPECT_EQ(free, size_t{48} << 20);
  // In the order of a stream.
  const cuda::Stream stream = one.stream();
  EXPECT_EQ(d.allocate_async(&address, 1024, stream), cuda::kSuccess);
  EXPECT_EQ(d.fill_async(address, 1, 1024, stream), cuda::kSuccess);
  EXPECT_EQ(d.free_async(address, stream), cuda::kSuccess);
  EXPECT_EQ(d.synchronize_stream(stream), cuda::kSuccess);
  EXPECT_EQ(d.free_async(address, stream), kInvalidValue);
  void* memory = nullptr;
  EXPECT_EQ(d.allocate_host(&memory, 0, 0), kInvalidValue);
  EXPECT_EQ(d.allocate_host(&memory, 8, 0), cuda::kSuccess);
  EXPECT_EQ(d.free_host(static_cast<std::byte*>(memory) + 4), kInvalidValue);
  EXPECT_EQ(d.free_host(memory), cuda::kSuccess);
  EXPECT_EQ(d.free_host(memory), kInvalidValue);
}

TEST(TwinRejects, CopiesBeyondAnAllocation) {
  const TwinCard one;
  const cuda::Driver& d = driver();
  const cuda::Stream stream = one.stream();
  const Pointer a = one.allocate(64), b = one.allocate(64);
  const std::vector<uint32_t> words(64);
  uint32_t* const pinned = one.pinned(4);
  EXPECT_EQ(d.copy_to_device_async(a, words.data(), 65, stream), kInvalidValue);
  EXPECT_EQ(d.copy_to_device_async(a + 60, words.data(), 8, stream), kInvalidValue);
  EXPECT_EQ(d.copy_to_device_async(a - 4, words.data(), 4, stream), kInvalidValue);
  EXPECT_EQ(d.copy_to_device_async(a, nullptr, 4, stream), kInvalidValue);
  EXPECT_EQ(d.copy_to_device_async(a, pinned, 32, stream), kInvalidValue) << "beyond the pinned memory";
  EXPECT_EQ(d.copy_to_host_async(pinned, b + 64, 4, stream), kInvalidValue);
  EXPECT_EQ(d.copy_async(a, b, 65, stream), kInvalidValue);
  EXPECT_EQ(d.fill_async(b + 1, 0, 64, stream), kInvalidValue);
  EXPECT_EQ(d.free(a), cuda::kSuccess);
  EXPECT_EQ(d.fill_async(a, 0, 4, stream), kInvalidValue) << "freed";
  EXPECT_EQ(d.copy_to_device_async(a, words.data(), 0, stream), cuda::kSuccess) << "nothing to copy";
  EXPECT_EQ(one.twin().violation(), "");
}

TEST(TwinRejects, Images) {
  const auto load = [](const char* image, std::string* log = nullptr, size_t log_bytes = 4096) {
    std::string text(log_bytes, '#');
    cuda::Module module = nullptr;
    // The size before the log: options may have any order.
    std::array<cuda::JitOption, 2> options = {cuda::kErrorLogBytes, cuda::kErrorLog};
    std::array<void*, 2> values = {reinterpret_cast<void*>(log_bytes / 2), text.data()};
    const Result result = driver().load_module(&module, image, 2, options.data(), values.data());
    EXPECT_EQ(text.substr(log_bytes / 2), std::string(log_bytes - log_bytes / 2, '#')) << "beyond the log";
    if (log != nullptr) *log = text.c_str();
    return result;
  };
  const auto ptx = [](const char* version, const char* target) {
    std::string text = kIncrement;
    text.replace(text.find("8.0"), 3, version);
    text.replace(text.find("sm_80"), 5, target);
    return text;
  };
  std::string log;
  {
    const TwinCard one("arch=90;driver=12080");
    EXPECT_EQ(load(kIncrement.c_str()), cuda::kSuccess);
    EXPECT_EQ(load(nullptr), kInvalidValue);
    EXPECT_EQ(load("\x7f"
                   "ELF of another GPU"),
              cuda::kNoBinary);
    EXPECT_EQ(load("no code at all"), cuda::kInvalidImage);
    EXPECT_EQ(load(ptx("8.7", "sm_90a").c_str()), cuda::kSuccess);
    EXPECT_EQ(load(ptx("8.8", "sm_80").c_str(), &log), 222);
    EXPECT_TRUE(has(log, ".version 8.8")) << log;
    EXPECT_EQ(load(ptx("8.7", "sm_100").c_str(), &log), cuda::kNoBinary);
    EXPECT_TRUE(has(log, "sm_100")) << log;
    std::string broken = kIncrement;
    broken.replace(broken.find("add.s32"), 7, "plus.32");
    EXPECT_EQ(load(broken.c_str(), &log), 218);
    EXPECT_TRUE(has(log, "plus")) << log;
    EXPECT_EQ(load(broken.c_str(), &log, 16), 218);
    EXPECT_EQ(log.size(), 7u) << "cut to its buffer";
  }
  const TwinCard other("arch=100");
  EXPECT_EQ(load(ptx("8.7", "sm_90a").c_str()), cuda::kNoBinary) << "only for 9.0";
  EXPECT_EQ(load(ptx("9.0", "sm_90").c_str()), cuda::kSuccess);
}

TEST(TwinRejects, LaunchesAndFunctions) {
  const TwinCard one("arch=80");
  const cuda::Driver& d = driver();
  const cuda::Stream stream = one.stream();
  const cuda::Module module = one.load(kIncrement);
  cuda::Function function = nullptr;
  EXPECT_EQ(d.function(&function, module, "decrement"), kNotFound);
  ASSERT_EQ(d.function(&function, module, "increment"), cuda::kSuccess);
  Pointer a = one.allocate(4096);
  one.write(a, std::vector<uint32_t>(1024), stream);
  void* arguments[] = {&a, &a};
  struct Shape {
    unsigned grid[3], block[3], shared;
  };
  const auto launch = [&](const Shape& s) {
    return d.launch(function, s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2], s.shared,
                    stream, arguments, nullptr);
  };
  const std::vector<Shape> rejected = {{{0, 1, 1}, {1, 1, 1}, 0},        {{1, 1, 0}, {1, 1, 1}, 0},
                                       {{1u << 31, 1, 1}, {1, 1, 1}, 0}, {{1, 65536, 1}, {1, 1, 1}, 0},
                                       {{1, 1, 65536}, {1, 1, 1}, 0},    {{1, 1, 1}, {0, 1, 1}, 0},
                                       {{1, 1, 1}, {1025, 1, 1}, 0},     {{1, 1, 1}, {32, 33, 1}, 0},
                                       {{1, 1, 1}, {1, 1, 65}, 0},       {{1, 1, 1}, {32, 1, 1}, 49153}};
  for (const Shape& shape : rejected)
    EXPECT_EQ(launch(shape), kInvalidValue) << shape.grid[0] << " " << shape.block[0] << " " << shape.shared;
  EXPECT_EQ(launch({{1, 1, 1}, {32, 1, 1}, 48 * 1024}), cuda::kSuccess);
  // 163 KiB is the limit of sm_80.
  EXPECT_EQ(d.set_function_attribute(function, cuda::kMaxDynamicSharedBytes, 163 * 1024 + 1), kInvalidValue);
  EXPECT_EQ(d.set_function_attribute(function, cuda::kMaxDynamicSharedBytes, 163 * 1024), cuda::kSuccess);
  EXPECT_EQ(launch({{1, 1, 1}, {32, 1, 1}, 163 * 1024}), cuda::kSuccess);
  EXPECT_EQ(d.launch(function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr), kInvalidValue);
  EXPECT_EQ(d.unload_module(module), cuda::kSuccess);
  EXPECT_EQ(launch({{1, 1, 1}, {32, 1, 1}, 0}), kInvalidHandle) << "of an unloaded module";
  EXPECT_EQ(d.unload_module(module), kInvalidHandle);
  EXPECT_EQ(one.twin().violation(), "");
}

TEST(TwinRejects, StreamsAndEvents) {
  const TwinCard one;
  const cuda::Driver& d = driver();
  const cuda::Stream stream = one.stream(), gone = one.stream();
  EXPECT_EQ(d.destroy_stream(gone), cuda::kSuccess);
  EXPECT_EQ(d.destroy_stream(gone), kInvalidHandle);
  EXPECT_EQ(d.synchronize_stream(gone), kInvalidHandle);
  EXPECT_EQ(d.query_stream(gone), kInvalidHandle);
  const cuda::Event never = one.event(cuda::kEventWithTiming), first = one.event(cuda::kEventWithTiming),
                    last = one.event(cuda::kEventWithTiming), plain = one.event();
  EXPECT_EQ(d.record_event(first, gone), kInvalidHandle);
  float milliseconds = 0;
  const Pointer a = one.allocate(64);
  EXPECT_EQ(d.record_event(first, stream), cuda::kSuccess);
  EXPECT_EQ(d.fill_async(a, 1, 64, stream), cuda::kSuccess);
  EXPECT_EQ(d.record_event(last, stream), cuda::kSuccess);
  EXPECT_EQ(d.record_event(plain, stream), cuda::kSuccess);
  EXPECT_EQ(d.elapsed(&milliseconds, first, never), kInvalidHandle);
  EXPECT_EQ(d.elapsed(&milliseconds, first, plain), kInvalidHandle) << "made without timing";
  EXPECT_EQ(d.elapsed(&milliseconds, first, last), cuda::kNotReady);
  EXPECT_EQ(d.query_event(never), cuda::kSuccess) << "never recorded: nothing to wait for";
  int queries = 0;
  while (d.query_event(last) == cuda::kNotReady) ++queries;
  EXPECT_GT(queries, 0);
  EXPECT_EQ(d.elapsed(&milliseconds, first, last), cuda::kSuccess);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(d.destroy_event(last), cuda::kSuccess);
  EXPECT_EQ(d.record_event(last, stream), kInvalidHandle);
  EXPECT_EQ(d.wait_event(stream, last, 0), kInvalidHandle);
}

TEST(TwinRejects, AKernelsFaultEndsTheContextWhenTheHostWaits) {
  const TwinCard one;
  const cuda::Driver& d = driver();
  const cuda::Stream stream = one.stream();
  const cuda::Function function = one.function(kIncrement, "increment");
  const Pointer a = one.allocate(128);
  one.write(a, std::vector<uint32_t>(32), stream);
  EXPECT_EQ(one.increment(function, a, a + 4, 32, stream), cuda::kSuccess) << "not by the launch";
  EXPECT_EQ(d.synchronize_stream(stream), kIllegalAddress);
  EXPECT_TRUE(has(one.twin().violation(), "[out of bounds] module.ptx:14")) << one.twin().violation();
  Pointer b = 0;
  EXPECT_EQ(d.allocate(&b, 4), kIllegalAddress) << "every later call returns it";
  EXPECT_EQ(d.synchronize(), kIllegalAddress);
  int count = 0;
  EXPECT_EQ(d.device_count(&count), cuda::kSuccess) << "but those without a context";
  const TwinCard next;
  const cuda::Stream other = next.stream();
  const Pointer c = next.allocate(256);
  next.write(c, std::vector<uint32_t>(64), other);
  EXPECT_EQ(next.increment(next.function(kIncrement, "increment"), c + 2, c, 1, other), cuda::kSuccess);
  EXPECT_EQ(d.synchronize(), kMisaligned);
}

TEST(TwinRejects, PlantedFaults) {
  const TwinCard one(
      "fail=cuMemAlloc:2:46;fault=cuMemsetD8Async:2:719;drop=cuStreamSynchronize:1;fail=cuMemFree:1:1");
  const cuda::Driver& d = driver();
  Pointer a = one.allocate(64), b = 0;
  EXPECT_EQ(d.allocate(&b, 64), 46);
  EXPECT_EQ(d.allocate(&b, 64), cuda::kSuccess);
  EXPECT_EQ(one.twin().calls("cuMemAlloc"), 3u);
  const cuda::Stream stream = one.stream();
  EXPECT_EQ(d.fill_async(a, 1, 64, stream), cuda::kSuccess);
  EXPECT_EQ(d.synchronize_stream(stream), cuda::kSuccess);
  EXPECT_EQ(d.query_stream(stream), cuda::kSuccess) << "the dropped call ran nothing, the query does";
  EXPECT_EQ(d.fill_async(a, 1, 64, stream), cuda::kSuccess);
  EXPECT_EQ(d.synchronize_stream(stream), kLaunchFailed);
  EXPECT_EQ(one.twin().violation(), "cuMemsetD8Async faults as planted");
  EXPECT_EQ(one.twin().unused(), "fail=cuMemFree:1:1");
  for (const char* wrong :
       {"seed", "seed=x", "cards=9", "fail=cuInit:1", "unwritten=1", "edit=a:b", "color=red"})
    EXPECT_THROW(one.twin().restart(wrong), std::invalid_argument) << wrong;
}

}  // namespace
}  // namespace strata::gpu_tests
