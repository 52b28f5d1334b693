// Money and risk of a run: published costs, the formula of ETTR next to its simulation, and contradictions.
#include "plan/run_cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace strata::planning {
namespace {

Interval hours(double value) {
  return {value, value, value};
}

RunCost price(const char* cluster, const RunWork& work, const PricingOptions& options = {}) {
  const Catalogue catalogue = builtin_catalogue();
  return price_run(catalogue, find_cluster(catalogue, cluster), work, options);
}

std::string price_refusal(const char* cluster, const RunWork& work, const PricingOptions& options = {}) {
  try {
    price(cluster, work, options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected a ConfigError";
  return "";
}

// 2.788M H800 hours at $2 are $5.576M; 1543 tokens/s of each device.
TEST(RunCost, OfDeepSeekV3) {
  RunWork work{.useful_hours = hours(2.788e6), .devices = 2048, .params = 671e9, .tokens = 14.8e12};
  const RunCost cost = price("h800", work);
  ASSERT_EQ(cost.offers.size(), 1u);
  EXPECT_NEAR(cost.offers[0].cost.low * cost.risk.ettr, 5.576e6, 1e3);
  EXPECT_EQ(cost.offers[0].cost.low, cost.offers[0].cost.high);
  EXPECT_NEAR(cost.wall_hours.value * 2048 * cost.risk.ettr, 2.788e6, 1);
  // 13 to 13.6 bytes a parameter were published; this is 14.
  EXPECT_NEAR(cost.storage.checkpoint_bytes, 9.394e12, 1e9);
}

TEST(RunCost, HoursFollowFromThePeakAndTheMfu) {
  const Catalogue catalogue = builtin_catalogue();
  const ChipSpec& h100 = find_chip(catalogue, "h100-sxm");
  const MfuBand band = typical_mfu(h100);
  EXPECT_EQ(band.mfu.low, 0.38);
  EXPECT_EQ(band.mfu.high, 0.53);
  EXPECT_FALSE(band.source.empty()) << "never silent";
  const Interval found = useful_hours(3.8e25, h100, {{0.4, 0.4, 0.4}, ""});
  EXPECT_NEAR(found.value, 3.8e25 / (989e12 * 0.4 * 3600), 10);
  const Interval range = useful_hours(1e24, h100, band);
  EXPECT_LT(range.low, range.value);
  EXPECT_LT(range.value, range.high);
  EXPECT_EQ(training_peak(find_chip(catalogue, "v100")).dtype, Precision::kFp16) << "no bf16";
  EXPECT_LT(typical_mfu(h100, true).mfu.low, band.mfu.low) << "mixtures are slower";
  EXPECT_NE(typical_mfu(find_chip(catalogue, "tpu-v5e")).source.find("no published band"), std::string::npos);
}

TEST(RunCost, FormulaAgreesWithTheSimulationWithinFivePercent) {
  for (const int64_t devices : {1024, 4096, 16384, 65536}) {
    for (const double save : {1.0, 60.0, 300.0}) {
      const RunCost cost = price("a100-80", {.useful_hours = hours(static_cast<double>(devices) * 24 * 30),
                                             .devices = devices,
                                             .params = 100e9,
                                             .tokens = 1e12,
                                             .save_seconds = save});
      EXPECT_NEAR(cost.risk.ettr / cost.risk.simulated.ettr, 1, 0.05) << devices << " " << save;
      EXPECT_GE(cost.risk.background_ettr, cost.risk.ettr - 1e-12);
      EXPECT_NEAR(cost.risk.interval / cost.risk.daly, 1, 0.05) << devices << " " << save;
    }
  }
}

TEST(RunCost, OffersByProviderAndSpot) {
  const RunWork work{.useful_hours = {1e5, 0.9e5, 1.2e5}, .devices = 512, .params = 70e9, .tokens = 1e12};
  const RunCost all = price("h100-sxm", work);
  EXPECT_EQ(all.offers.size(), 5u);
  for (const RunOffer& offer : all.offers) {
    EXPECT_NEAR(offer.cost.low, offer.offer.price.low * 0.9e5 / all.risk.ettr, 1);
    EXPECT_NEAR(offer.cost.high, offer.offer.price.high * 1.2e5 / all.risk.ettr, 1);
  }
  PricingOptions lambda;
  lambda.provider = "Lambda";
  EXPECT_EQ(price("h100-sxm", work, lambda).offers.size(), 1u);
  lambda.provider = "Lamda";
  const std::string refusal = price_refusal("h100-sxm", work, lambda);
  for (const char* part : {"[--provider]", "Lamda", "did you mean \"Lambda\"?"})
    EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
  // More interruptions make spot devices slower and dearer.
  const auto spot = [&](double monthly) {
    PricingOptions options;
    options.spot_hosts_per_month = monthly;
    for (const RunOffer& offer : price("b200", work, options).offers)
      if (offer.offer.price.terms == Terms::kSpot) return offer;
    ADD_FAILURE();
    return RunOffer{};
  };
  EXPECT_GT(spot(20).cost.low, spot(0.1).cost.low);
  EXPECT_GT(spot(20).offer.wall_hours, spot(0.1).offer.wall_hours);
  EXPECT_GT(spot(0.1).offer.wall_hours, spot(0).offer.wall_hours);
  // Saves longer than the notice and the time between interruptions: no price is right.
  PricingOptions hopeless;
  hopeless.spot_hosts_per_month = 1e6;
  RunWork slow = work;
  slow.save_seconds = 600;
  const RunCost never = price("b200", slow, hopeless);
  EXPECT_NE(to_text(never).find("never finishes"), std::string::npos) << to_text(never);
  EXPECT_GT(never.campaign.cost.low, 4.49 * 1e5) << "without the price of spot devices";
  EXPECT_TRUE(json_of(never)["offers"].back()["usd"]["low"].is_null());
}

TEST(RunCost, EnergyByRegion) {
  const RunWork work{.useful_hours = hours(1e5), .devices = 512, .params = 70e9, .tokens = 1e12};
  const RunCost all = price("h100-sxm", work);
  EXPECT_EQ(all.regions.size(), builtin_catalogue().regions.size());
  // 700 W and an eighth of 2.5 kW, PUE 1.2.
  EXPECT_NEAR(all.regions[0].middle.kwh * all.risk.ettr, 1e5 * 1.0125 * 1.2, 1);
  for (size_t i = 1; i < all.regions.size(); ++i)
    EXPECT_LE(all.regions[i - 1].middle.co2_kg, all.regions[i].middle.co2_kg) << "cleanest first";
  PricingOptions france;
  france.region = "France";
  const RunCost one = price("h100-sxm", work, france);
  ASSERT_EQ(one.regions.size(), 1u);
  EXPECT_NEAR(one.regions[0].middle.co2_kg, one.regions[0].middle.kwh * 0.056, 1e-6);
  france.region = "frence";
  EXPECT_NE(price_refusal("h100-sxm", work, france).find("did you mean \"france\"?"), std::string::npos);
  EXPECT_TRUE(price("tpu-v5e", work).regions.empty()) << "its power is not published";
}

TEST(RunCost, CampaignsAndContradictions) {
  const RunWork work{.useful_hours = hours(1e5), .devices = 512, .params = 70e9, .tokens = 1e12};
  EXPECT_TRUE(price("h100-sxm", work).campaign_is_final_run);
  PricingOptions options;
  options.ablations = 50;
  options.ablation_share = 0.01;
  options.failure_share = 0.2;
  const RunCost cost = price("h100-sxm", work, options);
  // 1.5 final runs, of which a quarter of an attempt fails halfway each.
  EXPECT_NEAR(cost.campaign.multiple, 1.5 * (1 + 0.25 * 0.5), 1e-9);
  EXPECT_NE(to_text(cost).find("1.69 times the final run"), std::string::npos);
  RunWork small = work;
  small.devices = 2;
  const std::string refusal = price_refusal("h100-sxm", small);
  for (const char* part : {"[--gpus]", "2 devices", "70.0B parameters", "at least 7 devices"})
    EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
  RunWork hopeless = work;
  hopeless.devices = 10'000'000;
  hopeless.save_seconds = 3000;
  EXPECT_THROW(price("h100-sxm", hopeless), ConfigError) << "fails more often than it can save";
}

// A run shorter than the best interval saves only at its end.
TEST(RunCost, ShortRunsAndClustersWithoutFailures) {
  const RunCost brief =
      price("h100-sxm", {.useful_hours = hours(1e-6), .devices = 8, .params = 1e6, .tokens = 1e3});
  EXPECT_GT(brief.risk.ettr, 0.999);
  EXPECT_GT(brief.risk.simulated.ettr, 0.999);
  const Catalogue catalogue = builtin_catalogue();
  ClusterSpec safe = find_cluster(catalogue, "h200");
  safe.failures_per_node_day.value = 0;
  safe.measured_mttf.clear();
  const RunCost cost =
      price_run(catalogue, safe, {.useful_hours = hours(1e5), .devices = 512, .params = 7e9, .tokens = 1e12});
  EXPECT_EQ(cost.risk.ettr, 1);
  EXPECT_NE(to_text(cost).find("failures        none"), std::string::npos) << to_text(cost);
  EXPECT_TRUE(json_of(cost)["risk"]["mttf_s"].is_null());
}

TEST(RunCost, DevicesHoldTheModelAndFinish) {
  const Catalogue catalogue = builtin_catalogue();
  const ClusterSpec& h100 = find_cluster(catalogue, "h100-sxm");
  EXPECT_EQ(devices_for(h100, 1.0, 1e9, 30), 1) << "16 GB";
  EXPECT_EQ(devices_for(h100, 1.0, 70e9, 30), 16) << "1120 GB";
  EXPECT_EQ(devices_for(h100, 64 * 720.0, 1e9, 30), 64);
  EXPECT_EQ(devices_for(h100, 65 * 720.0, 1e9, 30), 128) << "a power of two of hosts";
}

TEST(RunCost, JsonHasEveryPart) {
  const auto json = json_of(
      price("h100-sxm", {.useful_hours = hours(1e5), .devices = 512, .params = 70e9, .tokens = 1e12}));
  for (const char* key :
       {"useful_hours", "wall_hours", "risk", "storage", "offers", "spot", "regions", "campaign"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["offers"].size(), 5u);
  EXPECT_EQ(json["devices"], 512);
}

}  // namespace
}  // namespace strata::planning
