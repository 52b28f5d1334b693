// strata bench collectives: two ranks of this process, against two threads that copy memory.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/clock.h"
#include "base/json.h"
#include "benchmarks/benchmarks.h"
#include "comm/measure.h"
#include "comm/world.h"

namespace strata::benchmarks {
namespace {

constexpr int kRanks = 2, kTurns = 10;
constexpr std::array<int64_t, 5> kSizes = {int64_t{1} << 18, int64_t{1} << 20, int64_t{4} << 20,
                                           int64_t{16} << 20, int64_t{64} << 20};
constexpr int64_t kTurnBytes = int64_t{128} << 20;  // moved by each rank in a turn

enum Kind : uint8_t { kCopy, kAllReduce, kAllGather, kReduceScatter, kKinds };
constexpr std::array<const char*, kKinds> kNames = {"copy", "all-reduce", "all-gather", "reduce-scatter"};

struct Figures {
  std::array<std::array<double, kTurns>, kKinds> seconds{};  // of one operation on `size` bytes
};

double median(std::array<double, kTurns> values) {
  std::sort(values.begin(), values.end());
  return (values[kTurns / 2 - 1] + values[kTurns / 2]) / 2;
}

// Every rank receives `size` bytes; each counts as read and written once, as in the copy.
comm::Operation operation_of(Kind kind, int64_t size, int rank) {
  if (kind == kAllReduce) return comm::operation_of(comm::Measured::kAllReduce, size, rank);
  if (kind == kAllGather) return comm::operation_of(comm::Measured::kGather, size, rank);
  return comm::operation_of(comm::Measured::kReduceScatter, kRanks * size, rank);
}

void measure(comm::World& world, int64_t size, Figures& figures) {
  const int ranks[] = {0, 1};
  const auto group = world.group(ranks, "bench");
  const auto count = static_cast<size_t>(size);
  // Reduce-scatter reads twice the bytes that it keeps.
  std::vector<std::byte> from(2 * count, std::byte{1}), to(count, std::byte{2});
  std::array<std::unique_ptr<comm::Prepared>, kKinds> prepared;
  for (const Kind kind : {kAllReduce, kAllGather, kReduceScatter}) {
    prepared[kind] = group->prepare(operation_of(kind, size, world.rank()));
  }
  const comm::Buffers buffers[] = {{.send = from.data(), .receive = to.data()}};
  const int64_t repeats = std::max<int64_t>(1, kTurnBytes / size);
  for (int turn = -1; turn < kTurns; ++turn) {
    for (const Kind kind : {kCopy, kAllReduce, kAllGather, kReduceScatter}) {
      group->barrier();
      const double begin = monotonic_seconds();
      for (int64_t i = 0; i < repeats; ++i) {
        if (kind == kCopy) {
          std::memcpy(to.data(), from.data(), count);
        } else {
          group->wait(group->start(*prepared[kind], buffers));
        }
      }
      group->barrier();
      const double seconds = (monotonic_seconds() - begin) / static_cast<double>(repeats);
      if (turn >= 0 && world.rank() == 0) figures.seconds[kind][static_cast<size_t>(turn)] = seconds;
    }
  }
}

}  // namespace

void bench_collectives(BenchContext& context) {
  context.print(
      "\n  {} ranks of this process, one thread each; medians of {} turns, against {} threads that copy\n",
      kRanks, kTurns, kRanks);
  context.print("  {:>8} {:>12}", "bytes", "copy");
  for (const Kind kind : {kAllReduce, kAllGather, kReduceScatter}) context.print(" {:>24}", kNames[kind]);
  context.print("\n");
  for (const int64_t size : kSizes) {
    Figures figures;
    comm::run_local_ranks(kRanks, [&](comm::World& world) { measure(world, size, figures); });
    const double copy = median(figures.seconds[kCopy]);
    const auto rate = [&](double seconds) { return 2.0 * kRanks * static_cast<double>(size) / seconds; };
    context.print("  {:>8} {:>7.1f} GB/s", human_bytes(static_cast<double>(size)), rate(copy) / 1e9);
    nlohmann::ordered_json row = {{"bytes", size}, {"copy_bytes_per_s", rate(copy)}};
    for (const Kind kind : {kAllReduce, kAllGather, kReduceScatter}) {
      const double seconds = median(figures.seconds[kind]);
      context.print(" {:>8.1f} GB/s, {:>6.1f} %", rate(seconds) / 1e9, 100 * copy / seconds);
      row[kNames[kind]] = {{"bytes_per_s", rate(seconds)}, {"of_copy", copy / seconds}};
    }
    context.print("\n");
    context.result["sizes"].push_back(row);
  }
}

}  // namespace strata::benchmarks
