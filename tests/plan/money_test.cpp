#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "plan/cost.h"

namespace strata::planning {
namespace {

TEST(DeviceHours, OfPublishedRuns) {
  EXPECT_NEAR(tokens_per_device_second(14.8e12, 2.664e6), 1543, 0.5) << "DeepSeek-V3";
  EXPECT_NEAR(tokens_per_device_second(15.6e12, 30.84e6), 140.5, 0.05) << "Llama-3.1 405B";
  EXPECT_NEAR(tokens_per_device_second(1.4e12, 530432), 733.2, 0.1) << "LLaMA 33B";
  EXPECT_NEAR(tokens_per_device_second(1.4e12, 1022362), 380.4, 0.1) << "LLaMA 65B";
  EXPECT_NEAR(training_flops(175e9, 300e9), 3.15e23, 1e15) << "GPT-3";
  EXPECT_NEAR(training_flops(7e9, 2e12), 8.4e22, 1e15) << "LLaMA-2 7B";
  // 256 devices at 300 TFLOP/s process 182,857 tokens/s of 70B.
  EXPECT_NEAR(256 * 300e12 / training_flops(70e9, 1), 182857, 1);
}

TEST(DeviceHours, InconsistentClaimsOfGuides) {
  const Catalogue catalogue = builtin_catalogue();
  // 405B at 3.2M tokens/s on 2048 H100 needs 3797 TFLOP/s per device, 3.8 times the peak.
  const double needed = training_flops(405e9, 1) * 3.2e6 / 2048;
  EXPECT_NEAR(needed / 1e12, 3797, 1);
  EXPECT_NEAR(needed / find_chip(catalogue, "h100-sxm").peak_of(Precision::kBf16).value, 3.8, 0.05);
  // DeepSeek-V3 at 1.8M tokens/s on 1024 MI325X is 30 to 34 % of the peak, not 48 %.
  const double peak = find_chip(catalogue, "mi325x").peak_of(Precision::kBf16).value;
  EXPECT_NEAR(1.8e6 / 1024 * 2.2e11 / peak, 0.30, 0.005);
  EXPECT_NEAR(1.8e6 / 1024 * 2.5e11 / peak, 0.34, 0.005);
}

TEST(DeviceHours, GptThreeForFourMillionDollars) {
  // $4.6M buys 3.07M V100 hours at $1.50, which implies 28.5 TFLOP/s or 22.8 % of the peak.
  const Catalogue catalogue = builtin_catalogue();
  const double hours = 4.6e6 / 1.50;
  EXPECT_NEAR(hours, 3.07e6, 0.005e6);
  const double peak = find_chip(catalogue, "v100").peak_of(Precision::kFp16).value;
  EXPECT_NEAR(device_hours(3.15e23, peak, 0.228) / hours, 1, 0.005);
  EXPECT_NEAR(3.15e23 / (hours * 3600) / 1e12, 28.5, 0.05);
  // The same page's $20,480 an hour for 512 A100 is ten times its list price.
  const std::vector<Price> a100 = prices_of(catalogue, "a100-80");
  EXPECT_EQ(a100.back().provider, "AWS");
  EXPECT_NEAR(20480.0 / 512 / a100.back().high, 10, 0.1);
}

TEST(Campaign, DeepSeekV3) {
  const Catalogue catalogue = builtin_catalogue();
  const double price = prices_of(catalogue, "h800").at(0).low;
  const CampaignCost cost = campaign_cost({{.name = "pre-training", .device_hours = 2.664e6},
                                           {.name = "long context", .device_hours = 0.119e6},
                                           {.name = "post-training", .device_hours = 0.005e6}},
                                          {price, price});
  EXPECT_NEAR(cost.device_hours, 2.788e6, 1);
  EXPECT_NEAR(cost.cost.low, 5.576e6, 1);
  EXPECT_EQ(cost.failed_hours, 0);
}

TEST(Campaign, AblationsAndFailedRuns) {
  const CampaignCost cost = campaign_cost(
      {{.name = "final", .device_hours = 1000, .count = 1, .failure_share = 0.2, .failed_at = 0.4},
       {.name = "ablation", .device_hours = 10, .count = 30}},
      {2, 3});
  // A quarter of an attempt fails per successful run, after 40 % of its hours.
  EXPECT_NEAR(cost.failed_hours, 100, 1e-9);
  EXPECT_NEAR(cost.device_hours, 1400, 1e-9);
  EXPECT_NEAR(cost.multiple, 1.4, 1e-9);
  EXPECT_NEAR(cost.cost.high, 4200, 1e-9);
  EXPECT_THROW(campaign_cost({{.name = "x", .device_hours = 1, .failure_share = 1}}, {1, 1}), ConfigError);
}

TEST(Offers, SpotIsCheaperUntilItIsInterruptedTooOften) {
  const Catalogue catalogue = builtin_catalogue();
  const FailureModel failures{.mttf = 20 * 3600, .restart = 300, .save = 60};
  const auto cost_of_spot = [&](double interruptions, double notice) {
    for (const Offer& offer : offers(catalogue, "b200", 1e5, 64, failures, {interruptions, 1800, notice})) {
      if (offer.price.terms == Terms::kSpot) return offer;
    }
    return Offer{};
  };
  const std::vector<Offer> all = offers(catalogue, "b200", 1e5, 64, failures, {0.01, 1800, 120});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all.front().price.terms, Terms::kSpot) << "cheapest first";
  EXPECT_GT(all.back().cost.high, all.back().cost.low);
  EXPECT_NEAR(all.back().cost.low, 4.5 * all.back().hours.total(), 1e-6);
  EXPECT_GT(all.back().ettr, 0.9);
  EXPECT_GT(all.front().wall_hours, all.back().wall_hours) << "includes waits for devices";
  EXPECT_GT(cost_of_spot(0.5, 0).cost.low, cost_of_spot(0.01, 0).cost.low);
  EXPECT_GT(cost_of_spot(0.5, 0).cost.low, cost_of_spot(0.5, 120).cost.low) << "notice saves work";
  EXPECT_GT(cost_of_spot(8, 0).cost.low, all.back().cost.low) << "not worth it";
  EXPECT_THROW(paid_hours(1, 0), ConfigError);
}

// LLaMA (arXiv 2302.13971), table 15: hours x 400 W x PUE 1.1, 0.385 kg per kWh.
TEST(Energy, OfLlama) {
  const Catalogue catalogue = builtin_catalogue();
  const double watts = find_chip(catalogue, "a100-80").power.value;
  const double co2 = find_region(catalogue, "us-meta").co2_per_kwh.value;
  EXPECT_NEAR(energy_kwh(1022362, watts, 1.1) / 1e3, 449, 1);
  EXPECT_NEAR(energy_kwh(1022362, watts, 1.1) * co2 / 1e3, 173, 0.5);
  EXPECT_NEAR(energy_kwh(530432, watts, 1.1) / 1e3, 233, 0.5);
  EXPECT_NEAR(energy_kwh(530432, watts, 1.1) * co2 / 1e3, 90, 0.5);
}

TEST(Energy, IncludesHostsAndBuilding) {
  const ClusterSpec h100 = resolve_cluster("h100-sxm");
  const Region region{.name = "x",
                      .co2_per_kwh = {0.4, "test", Evidence::kUser},
                      .usd_per_kwh = {0.1, "test", Evidence::kUser}};
  const Energy energy = energy_of(h100, region, 1000, 0.8);
  EXPECT_NEAR(energy.kwh, 1000 * (700 * 0.8 + 2500.0 / 8) * 1.2 / 1000, 1e-6);
  EXPECT_NEAR(energy.co2_kg, 0.4 * energy.kwh, 1e-9);
  EXPECT_NEAR(energy.usd, 0.1 * energy.kwh, 1e-9);
  EXPECT_THROW(energy_of(resolve_cluster("tpu-v5e"), region, 1), ConfigError) << "no power was published";
}

// BLOOM 176B 2.3 TB, 340B 4.4 TB, 15B 204 GB: 13 to 13.6 bytes per parameter.
TEST(Storage, CheckpointsAsPublished) {
  for (const auto& [params, bytes] : {std::pair{176e9, 2.3e12}, {340e9, 4.4e12}, {15e9, 204e9}}) {
    EXPECT_NEAR(bytes / params, 13.3, 0.4);
    EXPECT_NEAR(kCheckpointBytesPerParam * params / bytes, 1, 0.1);
  }
}

TEST(Storage, BandwidthOfSavesAndTheLoader) {
  const ClusterSpec h100 = resolve_cluster("h100-sxm");
  const Storage storage =
      storage_of(h100, {.params = 70e9, .devices = 512, .kept = 5, .save_budget = 10, .tokens_per_s = 1e6});
  EXPECT_NEAR(storage.checkpoint_bytes, 980e9, 1);
  EXPECT_NEAR(storage.kept_bytes, 4900e9, 1);
  EXPECT_NEAR(storage.save_seconds, 980e9 / (64 * 2e9), 1e-9);
  EXPECT_NEAR(storage.needed_write_bytes_per_s, 98e9, 1);
  EXPECT_NEAR(storage.loader_bytes_per_s, 2e6, 1e-6);
  EXPECT_LT(storage.loader_share, 1e-4);
}

}  // namespace
}  // namespace strata::planning
