#include "comm/measure.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "comm/world.h"

namespace strata::comm {
namespace {

constexpr int kRanks = 2;

// Median seconds of a gather after which each rank has `bytes`.
double gather_seconds(World& world, Communicator& group, int64_t bytes, int turns) {
  const int64_t half = bytes / kRanks;
  Operation gather{.collective = Collective::kExchange, .transfers = {{.bytes = bytes}}, .label = "measured"};
  Transfer& transfer = gather.transfers.front();
  const auto part = [&](int64_t i) { return Runs{{.offset = i * half, .bytes = half}}; };
  transfer.send = {part(world.rank())};
  transfer.receive = {part(0), part(1)};
  const auto prepared = group.prepare(gather);
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

ExchangeRate measure_exchange() {
  constexpr int64_t kLarge = int64_t{4} << 20, kSmall = 16;
  ExchangeRate rate;
  run_local_ranks(kRanks, [&](World& world) {
    const int ranks[] = {0, 1};
    const auto group = world.group(ranks, "measured");
    const double small = gather_seconds(world, *group, kSmall, 101);
    const double large = gather_seconds(world, *group, kLarge, 21);
    if (world.rank() != 0) return;
    rate.startup_seconds = small;
    constexpr int64_t kReceived = kLarge / kRanks;
    rate.bytes_per_s = static_cast<double>(kReceived) / std::max(large - small, 1e-9);
  });
  return rate;
}

}  // namespace strata::comm
