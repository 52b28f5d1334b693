// Streams, events and pinned memory through the driver's calls: accesses without an order are found, whatever order the
// twin ran them in.
#include <algorithm>

#include "twin/harness.h"

namespace strata::gpu_tests {
namespace {

using cuda::Pointer;

// A batch goes through pinned memory on one stream to a kernel on another, whose result goes back the same way: three
// times through the same buffers, as training does.
struct Pipeline {
  explicit Pipeline(const std::string& settings) : one(settings) {}

  // The host's buffer is free when the copy has run: `reuse_early` forgets that.
  std::vector<uint32_t> run(bool reuse_early = false) const {
    const cuda::Driver& d = driver();
    const cuda::Stream copying = one.stream(), computing = one.stream();
    const cuda::Event there = one.event(), done = one.event(), copied = one.event();
    const cuda::Function function = one.function(kIncrement, "increment");
    const Pointer in = one.allocate(128), out = one.allocate(128);
    uint32_t *const from = one.pinned(32), *const to = one.pinned(32);
    std::vector<uint32_t> results;
    for (uint32_t step = 0; step < 3; ++step) {
      if (step > 0 && !reuse_early) d.synchronize_event(there);
      std::fill_n(from, 32, 10 * step);
      if (step > 0) d.wait_event(copying, done, 0);
      d.copy_to_device_async(in, from, 128, copying);
      d.record_event(there, copying);
      d.wait_event(computing, there, 0);
      one.increment(function, out, in, 32, computing);
      d.copy_to_host_async(to, out, 128, computing);
      d.record_event(done, computing);
      d.record_event(copied, computing);
      if (d.synchronize_event(copied) != cuda::kSuccess) break;
      results.push_back(to[31]);
    }
    d.synchronize();
    return results;
  }
  TwinCard one;
};

std::string with_seed(int seed, const std::string& more = "") {
  return "seed=" + std::to_string(seed) + ";" + more;
}

TEST(TwinOrder, AnOrderedPipelineIsClean) {
  for (int seed = 1; seed < 5; ++seed) {
    const Pipeline pipeline(with_seed(seed));
    EXPECT_EQ(pipeline.run(), (std::vector<uint32_t>{1, 11, 21}));
    EXPECT_EQ(pipeline.one.twin().violation(), "");
  }
}

TEST(TwinOrder, EveryMissingWaitIsFound) {
  // There are five, three of the kernel for the batch and two of the batch for the kernel.
  for (int wait = 1; wait <= 5; ++wait) {
    for (int seed = 1; seed < 5; ++seed) {
      const Pipeline pipeline(with_seed(seed, "drop=cuStreamWaitEvent:" + std::to_string(wait)));
      pipeline.run();
      EXPECT_EQ(pipeline.one.twin().unused(), "");
      // Waits for events that the host has seen are for safety only.
      const bool covered = wait == 2 || wait == 4;
      const std::string found = pipeline.one.twin().violation();
      EXPECT_EQ(found.empty(), covered) << wait;
      EXPECT_TRUE(covered || has(found, "[race]") || has(found, "[unwritten]")) << found;
    }
  }
}

TEST(TwinOrder, ABufferOfTheHostThatIsUsedTooEarlyIsFound) {
  for (int seed = 1; seed < 5; ++seed) {
    const TwinCard one(with_seed(seed));
    const cuda::Driver& d = driver();
    const cuda::Stream stream = one.stream();
    const Pointer a = one.allocate(128);
    uint32_t* const host = one.pinned(32);
    std::fill_n(host, 32, 5);
    d.copy_to_device_async(a, host, 128, stream);
    host[7] = 6;
    EXPECT_EQ(d.synchronize_stream(stream), 719);
    const std::string found = one.twin().violation();
    EXPECT_TRUE(has(found, "[host memory] pinned memory at 0x")) << found;
    EXPECT_TRUE(has(found, "changed while a copy from it was in flight: byte 28 of 128 bytes at +0"))
        << found;
  }
  // The target of a copy.
  const TwinCard one;
  const cuda::Driver& d = driver();
  const cuda::Stream stream = one.stream();
  const Pointer a = one.allocate(128);
  uint32_t* const host = one.pinned(32);
  std::fill_n(host, 32, 5);
  d.fill_async(a, 1, 128, stream);
  d.copy_to_host_async(host, a, 128, stream);
  EXPECT_EQ(host[0], 0xcbcbcbcb) << "neither old nor new before the host has waited";
  d.synchronize_stream(stream);
  EXPECT_EQ(host[0], 0x01010101u);
  d.copy_to_host_async(host, a, 128, stream);
  host[31] = 0;
  EXPECT_EQ(d.synchronize_stream(stream), 719);
  EXPECT_TRUE(has(one.twin().violation(), "changed while a copy to it was in flight: byte 124"))
      << one.twin().violation();
}

TEST(TwinOrder, PinnedMemoryIsFreedTooEarly) {
  const TwinCard one;
  const cuda::Stream stream = one.stream();
  const Pointer a = one.allocate(128);
  uint32_t* const host = one.pinned(32);
  std::fill_n(host, 32, 5);
  driver().copy_to_device_async(a, host, 128, stream);
  EXPECT_EQ(driver().free_host(host), 719);
  EXPECT_TRUE(has(one.twin().violation(), "was freed while a copy from it was in flight"))
      << one.twin().violation();
}

TEST(TwinOrder, AStreamWritesHowFarItHasCome) {
  const TwinCard one;
  const cuda::Driver& d = driver();
  const cuda::Stream stream = one.stream();
  uint32_t* const progress = one.pinned(1);
  *progress = 0;
  const auto address = reinterpret_cast<Pointer>(progress);
  const Pointer a = one.allocate(128);
  for (uint32_t n = 1; n <= 8; ++n) {
    EXPECT_EQ(d.fill_async(a, static_cast<unsigned char>(n), 128, stream), cuda::kSuccess);
    EXPECT_EQ(d.write_value(stream, address, n, cuda::kWithoutBarrier), cuda::kSuccess);
  }
  EXPECT_EQ(*progress, 0u);
  uint32_t last = 0;
  while (d.query_stream(stream) == cuda::kNotReady) {
    EXPECT_GE(*progress, last);
    last = *progress;
  }
  EXPECT_EQ(*progress, 8u);
  EXPECT_EQ(d.write_value(stream, address + 2, 1, 0), 1) << "not aligned";
  EXPECT_EQ(d.write_value(stream, 64, 1, 0), 1) << "no memory";
}

TEST(TwinOrder, DeviceMemoryIsFreedTooEarly) {
  for (int seed = 1; seed < 5; ++seed) {
    for (const bool waits : {true, false}) {
      const TwinCard one(with_seed(seed));
      const cuda::Driver& d = driver();
      const cuda::Stream first = one.stream(), second = one.stream();
      const cuda::Event done = one.event();
      Pointer a = 0;
      d.allocate_async(&a, 128, first);
      d.fill_async(a, 1, 128, first);
      d.record_event(done, first);
      if (waits) d.wait_event(second, done, 0);
      d.free_async(a, second);
      EXPECT_EQ(d.synchronize() == cuda::kSuccess, waits) << one.twin().violation();
      EXPECT_TRUE(waits || has(one.twin().violation(), "[race]") || has(one.twin().violation(), "[freed]"))
          << one.twin().violation();
    }
  }
}

TEST(TwinOrder, CopiesOfTwoStreamsShareABuffer) {
  for (int seed = 1; seed < 5; ++seed) {
    const TwinCard one(with_seed(seed));
    const cuda::Driver& d = driver();
    const cuda::Stream first = one.stream(), second = one.stream();
    const Pointer a = one.allocate(128), b = one.allocate(128);
    uint32_t* const host = one.pinned(32);
    one.write(a, std::vector<uint32_t>(32, 9), first);
    // In one stream: down, then up from the same buffer.
    d.copy_to_host_async(host, a, 128, first);
    d.copy_to_device_async(b, host, 128, first);
    EXPECT_EQ(d.synchronize_stream(first), cuda::kSuccess) << one.twin().violation();
    EXPECT_EQ(one.read(b, 32, first), std::vector<uint32_t>(32, 9));
    // On two streams without a wait.
    d.copy_to_host_async(host, a, 128, first);
    d.copy_to_device_async(b, host, 128, second);
    EXPECT_EQ(d.synchronize(), 719);
    EXPECT_TRUE(has(one.twin().violation(), "pinned memory at")) << one.twin().violation();
    EXPECT_TRUE(has(one.twin().violation(), "[race]")) << one.twin().violation();
  }
}

TEST(TwinOrder, PageableMemoryIsReadWhenACopyIsCalled) {
  const TwinCard one;
  const cuda::Driver& d = driver();
  const cuda::Stream stream = one.stream();
  const Pointer a = one.allocate(128);
  std::vector<uint32_t> words(32, 3);
  d.copy_to_device_async(a, words.data(), 128, stream);
  std::fill(words.begin(), words.end(), 4);
  EXPECT_EQ(one.read(a, 32, stream), std::vector<uint32_t>(32, 3)) << "and has arrived when the call returns";
}

TEST(TwinOrder, AReadOfWhatWasNeverWrittenIsFound) {
  const TwinCard one;
  const cuda::Stream stream = one.stream();
  const Pointer a = one.allocate(128), b = one.allocate(128);
  one.increment(one.function(kIncrement, "increment"), b, a, 32, stream);
  EXPECT_EQ(driver().synchronize_stream(stream), 719);
  EXPECT_TRUE(has(one.twin().violation(), "[unwritten] module.ptx:14")) << one.twin().violation();
  const TwinCard lenient("unwritten=off");
  const cuda::Stream other = lenient.stream();
  const Pointer c = lenient.allocate(128), e = lenient.allocate(128);
  lenient.increment(lenient.function(kIncrement, "increment"), e, c, 32, other);
  EXPECT_EQ(driver().synchronize_stream(other), cuda::kSuccess);
  EXPECT_EQ(lenient.read(e, 1, other)[0], 0xcdcdcdceu) << "poison";
}

TEST(TwinOrder, ABufferReusedByTheNextStepIsFound) {
  for (int seed = 1; seed < 5; ++seed) {
    // The wait for the result of the step before covers the batch's copy, too: it is dropped with it.
    const Pipeline pipeline(with_seed(seed, "drop=cuEventSynchronize:1"));
    pipeline.run(true);
    EXPECT_EQ(pipeline.one.twin().unused(), "");
    EXPECT_TRUE(has(pipeline.one.twin().violation(), "changed while a copy from it was in flight"))
        << pipeline.one.twin().violation();
  }
}

}  // namespace
}  // namespace strata::gpu_tests
