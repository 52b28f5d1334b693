#include "comm/measure.h"

#include <algorithm>

#include "base/clock.h"
#include "comm/world.h"

namespace strata::comm {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kKiB = 1024, kMiB = kKiB * kKiB;

double median_seconds(World& world, Communicator& group, Measured kind, int64_t bytes, int turns) {
  const auto prepared = group.prepare(operation_of(kind, bytes, world.rank()));
  std::vector<std::byte> from(static_cast<size_t>(bytes), std::byte{1}), to = from;
  const Buffers buffers[] = {{.send = from.data(), .receive = to.data()}};
  std::vector<double> seconds;
  for (int turn = 0; turn < turns; ++turn) {
    group.barrier();
    const double begin = monotonic_seconds();
    group.wait(group.start(*prepared, buffers));
    seconds.push_back(monotonic_seconds() - begin);
  }
  std::nth_element(seconds.begin(), seconds.begin() + turns / 2, seconds.end());
  return seconds[static_cast<size_t>(turns / 2)];
}

}  // namespace

std::string_view name_of(Measured kind) {
  switch (kind) {
    case Measured::kGather:
      return "all-gather";
    case Measured::kReduceScatter:
      return "reduce-scatter";
    case Measured::kAllReduce:
      return "all-reduce";
  }
  return "";
}

Operation operation_of(Measured kind, int64_t bytes, int rank) {
  Operation operation{.transfers = {{.dtype = DType::kF32, .bytes = bytes}},
                      .label = std::string(name_of(kind))};
  if (kind == Measured::kAllReduce) return operation;
  Transfer& transfer = operation.transfers.front();
  const int64_t half = bytes / kRanks;
  const auto part = [&](int64_t i) { return Runs{{.offset = i * half, .bytes = half}}; };
  if (kind == Measured::kGather) {
    operation.collective = Collective::kExchange;
    transfer.send = {part(rank)};
    transfer.receive = {part(0), part(1)};
  } else {
    operation.collective = Collective::kReduceScatter;
    transfer.bytes = half;
    transfer.send = {part(0), part(1)};
    transfer.receive = {part(0)};
  }
  return operation;
}

ExchangeRate measure_exchange(int64_t cache_bytes) {
  constexpr int64_t kSmall = 16;
  const int64_t cache = std::clamp<int64_t>(cache_bytes, 8 * kMiB, 128 * kMiB) / kMiB * kMiB;
  const int64_t warm = cache / 8, cold = 2 * cache;
  ExchangeRate rate;
  run_local_ranks(kRanks, [&](World& world) {
    const int ranks[] = {0, 1};
    const auto group = world.group(ranks, "measured");
    const double small = median_seconds(world, *group, Measured::kGather, kSmall, 101);
    const auto rate_at = [&](int64_t bytes, int turns) {
      const double seconds = median_seconds(world, *group, Measured::kGather, bytes, turns);
      const int64_t received = bytes / kRanks;
      return static_cast<double>(received) / std::max(seconds - small, 1e-9);
    };
    const double from_cache = rate_at(warm, 21), from_memory = rate_at(cold, 7);
    if (world.rank() == 0) rate = {from_cache, from_memory, small};
  });
  return rate;
}

std::vector<CollectiveTime> measure_collectives() {
  std::vector<CollectiveTime> out;
  run_local_ranks(kRanks, [&](World& world) {
    const int ranks[] = {0, 1};
    const auto group = world.group(ranks, "measured");
    for (const Measured kind : kAllMeasured) {
      for (const int64_t bytes : {4 * kKiB, 256 * kKiB, 16 * kMiB}) {
        const double seconds = median_seconds(world, *group, kind, bytes, bytes > kMiB ? 9 : 51);
        if (world.rank() == 0) out.push_back({kind, bytes, seconds});
      }
    }
  });
  return out;
}

}  // namespace strata::comm
