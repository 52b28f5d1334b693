#include "hardware/cluster_spec.h"

#include <gtest/gtest.h>

namespace strata::hardware {
namespace {

Figure figure(double value) {
  return {value, "a test"};
}

// Hosts of 8 with 100 GB/s inside and 10 GB/s for each device between them.
std::vector<LinkLevel> links(double startup = 0) {
  return {{.name = "inside",
           .size = 8,
           .bandwidth = figure(100e9),
           .achievable = figure(1),
           .startup = figure(startup)},
          {.name = "between",
           .bandwidth = figure(10e9),
           .achievable = figure(1),
           .startup = figure(3 * startup)}};
}

TEST(ExchangeSeconds, FollowTheRingFormulas) {
  const auto on = links();
  const double bytes = 8e9;
  // Ring: (n - 1)/n of the bytes, twice for an all-reduce.
  EXPECT_DOUBLE_EQ(exchange_seconds(on, Exchange::kGather, {8, 1}, bytes), 7 / 8.0 * 0.08);
  EXPECT_DOUBLE_EQ(exchange_seconds(on, Exchange::kReduceScatter, {8, 1}, bytes), 7 / 8.0 * 0.08);
  EXPECT_DOUBLE_EQ(exchange_seconds(on, Exchange::kAllReduce, {8, 1}, bytes), 2 * 7 / 8.0 * 0.08);
  EXPECT_DOUBLE_EQ(exchange_seconds(on, Exchange::kAllToAll, {8, 1}, bytes), 7 / 8.0 * 0.08);
  EXPECT_DOUBLE_EQ(exchange_seconds(on, Exchange::kSend, {2, 4}, bytes), 0.08);
  EXPECT_DOUBLE_EQ(exchange_seconds(on, Exchange::kSend, {2, 8}, bytes), 0.8);
  EXPECT_EQ(exchange_seconds(on, Exchange::kAllReduce, {1, 1}, bytes), 0);
  EXPECT_EQ(exchange_seconds(on, Exchange::kAllReduce, {8, 1}, 0), 0);
  EXPECT_EQ(exchange_seconds({}, Exchange::kAllReduce, {8, 1}, bytes), 0);
}

// With M hosts of g the NICs take 2 (M - 1)/M of S/g (reference: hierarchical all-reduce).
TEST(ExchangeSeconds, MembersOfAHostShareItsNics) {
  const auto on = links();
  const double bytes = 8e9;
  EXPECT_DOUBLE_EQ(exchange_seconds(on, Exchange::kAllReduce, {32, 1}, bytes), 2 * 3 / 4.0 * 1e9 / 10e9);
  // One member of each host uses its own NIC only.
  EXPECT_DOUBLE_EQ(exchange_seconds(on, Exchange::kAllReduce, {4, 8}, bytes), 2 * 3 / 4.0 * 8e9 / 10e9);
  // Two a host.
  EXPECT_DOUBLE_EQ(exchange_seconds(on, Exchange::kGather, {8, 4}, bytes), 3 / 4.0 * 4e9 / 10e9);
  // Of an all-to-all 24 of 32 parts leave the host.
  EXPECT_DOUBLE_EQ(exchange_seconds(on, Exchange::kAllToAll, {32, 1}, bytes), 24 / 32.0 * 8e9 / 10e9);
}

TEST(ExchangeSeconds, StartWithTheSlowestLevel) {
  EXPECT_NEAR(exchange_seconds(links(1e-3), Exchange::kGather, {8, 1}, 1), 1e-3, 1e-9);
  EXPECT_NEAR(exchange_seconds(links(1e-3), Exchange::kGather, {16, 1}, 1), 3e-3, 1e-9);
}

// A cache of 8 MB holds what two ranks send and receive of 2 MB; of 4 MB it holds nothing when it is needed again.
TEST(ExchangeSeconds, OfMoreThanTheCacheHoldsTakeTheRateOfMemory) {
  DeviceSpec device;
  device.kept_bytes = 8'000'000;
  device.memory_bytes_per_s = 40e9;
  device.exchange_bytes_per_s = 20e9;
  device.exchange_seconds = 1e-6;
  const Machine flat(device);
  device.exchange_cold_bytes_per_s = 5e9;
  const Machine machine(device);
  const auto gather = [](const Machine& on, double bytes, double cold = 0) {
    return exchange_seconds(on.links, Exchange::kGather, {2, 1}, bytes, cold) - 1e-6;
  };
  for (const double bytes : {1e3, 1e6, 2e6}) {
    EXPECT_NEAR(gather(machine, bytes), bytes / 2 / 20e9, 1e-12) << bytes;
    EXPECT_NEAR(gather(machine, bytes, 1), bytes / 2 / 5e9, 1e-12) << bytes << ", from memory";
    EXPECT_NEAR(gather(machine, bytes, 0.5), (bytes / 4) / 20e9 + (bytes / 4) / 5e9, 1e-12) << bytes;
  }
  for (const double bytes : {4e6, 1e9}) {
    for (const double cold : {0.0, 0.3, 1.0})
      EXPECT_NEAR(gather(machine, bytes, cold), bytes / 2 / 5e9, 1e-9) << bytes << ", " << cold;
  }
  EXPECT_NEAR(gather(machine, 3e6), 0.75e6 / 20e9 + 0.75e6 / 5e9, 1e-12) << "half of it";
  for (const double bytes : {1e3, 1e9})
    EXPECT_NEAR(gather(flat, bytes, 1), bytes / 2 / 20e9, 1e-9) << "one rate is known";
}

TEST(Outermost, IsTheLevelThatHoldsTheGroup) {
  const auto on = links();
  EXPECT_EQ(outermost(on, {1, 1}), nullptr);
  EXPECT_EQ(outermost(on, {8, 1}), on.data());
  EXPECT_EQ(outermost(on, {9, 1}), on.data() + 1);
  EXPECT_EQ(outermost(on, {2, 8}), on.data() + 1);
}

TEST(Machine, OfAChipHasItsAchievableRates) {
  ClusterSpec cluster;
  cluster.chip.title = "a chip";
  cluster.chip.kind = "gpu";
  cluster.chip.peak[Precision::kBf16] = figure(1000e12);
  cluster.chip.achievable[Precision::kBf16] = figure(0.7);
  cluster.chip.memory = figure(80e9);
  cluster.chip.memory_bandwidth = figure(3e12);
  cluster.chip.memory_achievable = figure(0.8);
  cluster.chip.launch = figure(5e-6);
  cluster.links = links();
  const Machine machine(cluster, 16);
  EXPECT_EQ(machine.device.peak_flops[Precision::kBf16], 1000e12);
  EXPECT_EQ(machine.device.gemm_flops[Precision::kBf16], 700e12);
  EXPECT_EQ(machine.device.memory_bytes, 80'000'000'000);
  EXPECT_DOUBLE_EQ(machine.device.memory_bytes_per_s, 2.4e12);
  EXPECT_EQ(machine.device.launch_seconds, 5e-6);
  EXPECT_EQ(machine.links.size(), 2u);
}

TEST(Machine, OfAProcessorExchangesThroughItsMemory) {
  DeviceSpec device;
  device.memory_bytes_per_s = 40e9;
  EXPECT_EQ(Machine(device).links.at(0).bandwidth.value, 10e9) << "not measured";
  device.exchange_bytes_per_s = 7e9;
  device.exchange_seconds = 4e-6;
  const Machine machine(device);
  EXPECT_NEAR(exchange_seconds(machine.links, Exchange::kGather, {2, 1}, 14e9), 1, 1e-5);
  EXPECT_EQ(machine.links.at(0).compute_share.value, 1);
  EXPECT_TRUE(Machine(DeviceSpec{}).links.empty());
}

TEST(Machine, OfAMeasuredHostDependsOnTheRanksThatShareIt) {
  DeviceSpec alone, shared;
  alone.threads = 4;
  shared.threads = 2;
  alone.memory_bytes_per_s = shared.memory_bytes_per_s = 40e9;
  const ClusterSpec cluster = cluster_of({alone, shared});
  EXPECT_EQ(cluster.devices_per_host, 2);
  EXPECT_EQ(Machine(cluster, 1).device, alone);
  EXPECT_EQ(Machine(cluster, 2).device, shared);
  EXPECT_EQ(Machine(cluster, 64).device, shared) << "several hosts, two ranks each";
  EXPECT_EQ(Machine(cluster, 2).chip, "") << "priced by measured rates, not by a catalogue";
}

}  // namespace
}  // namespace strata::hardware
