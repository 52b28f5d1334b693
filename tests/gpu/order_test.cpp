// Streams and events: a missing wait is a race, whatever the execution order was.
#include <gtest/gtest.h>

#include "snippet.h"

namespace strata::gpu_tests {
namespace {

struct Fixture {
  explicit Fixture(uint64_t seed = 1)
      : device({.seed = seed}),
        // out[i] = in[i] + 1
        module(device.load(
            kernel_text("mov.u32 %r0, %tid.x;\nmul.wide.u32 %x0, %r0, 4;\nadd.s64 %x1, %out, %x0;\nadd.s64 "
                        "%x0, %in, %x0;\n"
                        "ld.global.u32 %r1, [%x0];\nadd.s32 %r1, %r1, 1;\nst.global.u32 [%x1], %r1;\n"),
            "test.ptx")),
        a(device.allocate(128, "a")),
        b(device.allocate(128, "b")),
        copying(device.create_stream()),
        computing(device.create_stream()) {}
  void step(uint64_t to, uint64_t from, StreamId stream) {
    device.launch(module.kernel("test"), {.block = {32}, .stream = stream}, to, from);
  }
  Fault fault() {
    try {
      device.synchronize();
    } catch (const Violation& violation) {
      details = violation.details();
      return violation.fault();
    }
    return Fault::kTrap;  // none
  }

  Device device;
  const Module& module;
  uint64_t a, b;
  StreamId copying, computing;
  std::vector<uint32_t> host = std::vector<uint32_t>(32, 7);
  ViolationDetails details;
};

constexpr Fault kNoFault = Fault::kTrap;

TEST(PtxOrder, EventsOrderStreams) {
  for (uint64_t seed = 1; seed < 9; ++seed) {
    Fixture f(seed);
    const EventId there = f.device.create_event(), done = f.device.create_event();
    for (int n = 0; n < 3; ++n) {
      if (n > 0) f.device.wait(f.copying, done);
      f.device.copy_in(f.a, f.host.data(), 128, f.copying);
      f.device.record(there, f.copying);
      f.device.wait(f.computing, there);
      f.step(f.b, f.a, f.computing);
      f.device.record(done, f.computing);
    }
    EXPECT_EQ(f.fault(), kNoFault);
    std::vector<uint32_t> words(32);
    f.device.read(f.b, words.data(), 128);
    EXPECT_EQ(words, std::vector<uint32_t>(32, 8));
  }
}

TEST(PtxOrder, MissingWaits) {
  for (uint64_t seed = 1; seed < 9; ++seed) {
    {
      Fixture f(seed);  // the kernel does not wait for the copy
      f.device.write(f.a, f.host.data(), 128);
      f.device.copy_in(f.a, f.host.data(), 128, f.copying);
      f.step(f.b, f.a, f.computing);
      EXPECT_EQ(f.fault(), Fault::kRace);
      EXPECT_EQ(f.details.allocation, "a");
    }
    {
      Fixture f(seed);  // the next copy overwrites data that the kernel still reads
      const EventId there = f.device.create_event();
      f.device.copy_in(f.a, f.host.data(), 128, f.copying);
      f.device.record(there, f.copying);
      f.device.wait(f.computing, there);
      f.step(f.b, f.a, f.computing);
      f.device.copy_in(f.a, f.host.data(), 128, f.copying);
      EXPECT_EQ(f.fault(), Fault::kRace);
    }
    {
      Fixture f(seed);  // two kernels share a workspace on two streams
      f.device.write(f.a, f.host.data(), 128);
      f.step(f.b, f.a, f.copying);
      f.step(f.b, f.a, f.computing);
      EXPECT_EQ(f.fault(), Fault::kRace);
      EXPECT_NE(f.details.other.find("kernel test on stream"), std::string::npos) << f.details.other;
    }
    {
      Fixture f(seed);  // the event was recorded too early
      const EventId early = f.device.create_event();
      f.device.write(f.a, f.host.data(), 128);
      f.device.record(early, f.copying);
      f.device.copy_in(f.a, f.host.data(), 128, f.copying);
      f.device.wait(f.computing, early);
      f.step(f.b, f.a, f.computing);
      EXPECT_EQ(f.fault(), Fault::kRace);
    }
  }
}

TEST(PtxOrder, ManyReadersOfSeveralStreams) {
  Fixture f;
  const StreamId third = f.device.create_stream();
  const uint64_t c = f.device.allocate(128, "c"), d = f.device.allocate(128, "d");
  f.device.write(f.a, f.host.data(), 128);
  f.step(f.b, f.a, f.copying);
  f.step(c, f.a, f.computing);
  f.step(d, f.a, third);
  EXPECT_EQ(f.fault(), kNoFault);
  // The write does not wait for one of the three.
  f.step(f.b, f.a, f.copying);
  f.step(c, f.a, f.computing);
  f.step(d, f.a, third);
  const EventId one = f.device.create_event(), two = f.device.create_event();
  f.device.record(one, f.copying);
  f.device.record(two, third);
  const StreamId writer = f.device.create_stream();
  f.device.wait(writer, one);
  f.device.wait(writer, two);
  f.device.fill(f.a, std::byte{0}, 128, writer);
  EXPECT_EQ(f.fault(), Fault::kRace);
}

TEST(PtxOrder, TheHostIsAStream) {
  Fixture f;
  f.device.write(f.a, f.host.data(), 128);
  f.step(f.b, f.a, f.computing);
  // The host reads before it has waited.
  std::vector<uint32_t> words(32);
  EXPECT_THROW(
      {
        f.device.read(f.b, words.data(), 128);
        f.device.synchronize();
      },
      Violation);

  Fixture g;
  g.device.write(g.a, g.host.data(), 128);
  g.step(g.b, g.a, g.computing);
  g.device.write(g.a, g.host.data(), 128);  // while the kernel may still read it
  EXPECT_EQ(g.fault(), Fault::kRace);

  Fixture h;  // waiting for an event is enough
  const EventId done = h.device.create_event();
  h.device.write(h.a, h.host.data(), 128);
  h.step(h.b, h.a, h.computing);
  h.device.record(done, h.computing);
  EXPECT_FALSE(h.device.event_done(done));
  EXPECT_FALSE(h.device.stream_done(h.computing));
  EXPECT_TRUE(h.device.stream_done(h.copying));
  h.device.synchronize_event(done);
  EXPECT_TRUE(h.device.event_done(done));
  h.device.read(h.b, words.data(), 128);
  EXPECT_EQ(words[31], 8u);
  h.device.copy(h.a, h.b, 128, h.computing);
  h.device.copy_out(words.data(), h.a, 128, h.computing);
  int calls = 0;
  h.device.call([&] { ++calls; }, h.computing);
  h.device.synchronize(h.computing);
  EXPECT_EQ(words[3], 8u);
  EXPECT_EQ(calls, 1);
  EXPECT_THROW(h.device.copy_in(h.a, words.data(), 256, h.computing); h.device.synchronize(), Violation);
}

TEST(PtxOrder, StepsRunWhatMayRun) {
  Fixture f;
  const EventId there = f.device.create_event();
  EXPECT_FALSE(f.device.step());
  f.device.copy_in(f.a, f.host.data(), 128, f.copying);
  f.device.record(there, f.copying);
  f.device.wait(f.computing, there);
  f.step(f.b, f.a, f.computing);
  EXPECT_TRUE(f.device.step());
  EXPECT_TRUE(f.device.event_done(there)) << "the copy comes first";
  EXPECT_FALSE(f.device.stream_done(f.computing));
  EXPECT_TRUE(f.device.step());
  EXPECT_FALSE(f.device.step());
  EXPECT_TRUE(f.device.stream_done(f.computing));
  // A forgotten event orders nothing.
  Fixture g;
  const EventId forgotten = g.device.create_event();
  g.device.copy_in(g.a, g.host.data(), 128, g.copying);
  g.device.record(forgotten, g.copying);
  g.device.forget(forgotten);
  g.device.wait(g.computing, forgotten);
  g.step(g.b, g.a, g.computing);
  EXPECT_NE(g.fault(), kNoFault);
}

TEST(PtxOrder, CopiesKeepWhatWasNeverWritten) {
  Fixture f;
  f.device.write(f.a, f.host.data(), 64);
  f.device.copy(f.b, f.a, 128, f.computing);
  EXPECT_EQ(f.fault(), kNoFault);
  std::vector<uint32_t> words(32);
  f.device.read(f.b, words.data(), 64);
  EXPECT_EQ(words[15], 7u);
  try {
    f.device.read(f.b, words.data(), 68);
    FAIL();
  } catch (const Violation& violation) {
    EXPECT_EQ(violation.fault(), Fault::kUnwritten);
  }
}

TEST(PtxOrder, NumbersOfOperationsStartAgain) {
  Fixture f;
  std::vector<uint32_t> words(32);
  f.device.write(f.a, f.host.data(), 128);
  for (int n = 0; n < 40'000; ++n) f.device.read(f.a, words.data(), 4);
  f.step(f.b, f.a, f.computing);
  f.step(f.b, f.a, f.copying);
  EXPECT_EQ(f.fault(), Fault::kRace);
}

}  // namespace
}  // namespace strata::gpu_tests
