#include "plan/run_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "base/suggest.h"

namespace strata::planning {
namespace {

struct PublishedBand {
  std::array<std::string_view, 8> chips;
  double low, high;
  std::string_view source;
};
// 25th and 75th percentiles of full-attention MFU in bf16, dense models.
constexpr PublishedBand kBands[] = {
    {{"a100-80", "a100-40"}, 0.45, 0.56, "p25 to p75 of 41 published A100 runs"},
    {{"h100-sxm", "h100-pcie", "h100-96", "h200", "h800", "h20"},
     0.38,
     0.53,
     "p25 to p75 of 55 published H100 runs"},
    {{"gb200", "b200", "gb300", "b300"}, 0.40, 0.43, "3 published GB200 runs"},
};
constexpr double kAllLow = 0.38, kAllHigh = 0.56;          // over the groups above
constexpr double kMixtureLow = 0.17, kMixtureHigh = 0.45;  // H100, 2 runs

// bf16 weights and gradients, fp32 master weights and two moments.
constexpr double kTrainingBytesPerParam = 16.0;
// bf16 weights, gradients and both moments, the leanest published layout (llmq).
constexpr double kLeastBytesPerParam = 8.0;
constexpr double kBackgroundSave = 5.0;  // s; asynchronous saves block for 1 to 5 s
constexpr double kShortestSave = 1.0;    // s; large storage writes faster, but ranks wait for each other
constexpr double kLeastEttr = 0.01;      // a run that makes less progress is not worth simulating
constexpr double kDaysPerMonth = 30.4;
// AWS announces interruptions two minutes ahead. The wait for another host is an estimate.
constexpr double kSpotNotice = 120.0, kSpotWait = 1800.0;

Interval scaled(const Interval& interval, double factor) {
  return {interval.value * factor, interval.low * factor, interval.high * factor};
}

void check_memory(const ClusterSpec& cluster, const RunWork& work) {
  if (!cluster.chip.memory.known()) return;
  const double have = cluster.chip.memory.value * static_cast<double>(work.devices);
  if (have >= kLeastBytesPerParam * work.params) return;
  throw ConfigError(
      "[--gpus] found {} devices together with {} parameters: their memory of {} is less than the {} of 8 "
      "bytes a parameter; use at least {} devices or a smaller model",
      work.devices, human_count(work.params), human_bytes(have),
      human_bytes(kLeastBytesPerParam * work.params),
      static_cast<int64_t>(std::ceil(kLeastBytesPerParam * work.params / cluster.chip.memory.value)));
}

RunRisk risk_of(const ClusterSpec& cluster, const RunWork& work, double save, uint64_t seed) {
  RunRisk out;
  out.mttf = mttf_of(cluster, work.devices);
  out.failures = {.mttf = out.mttf.seconds(), .restart = cluster.restart.value, .save = save};
  const double useful = work.useful_hours.value / static_cast<double>(work.devices) * 3600;
  const auto plan = [&](FailureModel model, double& interval) {
    interval = best_interval(model);
    if (interval >= useful) {  // one interval: the run ends with its only save, which blocks no step
      interval = useful;
      model.save = 0.0;
    }
    return model;
  };
  const FailureModel planned = plan(out.failures, out.interval);
  out.young = young_interval(save, out.failures.mttf);
  out.daly = daly_interval(save, out.failures.mttf);
  out.availability = availability_interval(save, out.failures.mttf, out.failures.restart);
  out.ettr = ettr(planned, out.interval);
  out.ettr_linear = ettr_linear(planned, out.interval);
  if (out.ettr < kLeastEttr) {
    throw ConfigError(
        "[--gpus] found {} devices that fail every {:.3g} s, saves of {:.3g} s and restarts of {:.3g} s: less than "
        "1 % of the time is useful; use fewer devices, or save and restart faster",
        work.devices, out.failures.mttf, save, out.failures.restart);
  }
  // Enough runs for a mean within 1 %, at most a fraction of a second.
  const double intervals = useful / out.interval + useful / out.failures.mttf;
  out.simulated = simulate_runs(out.failures, out.interval, useful,
                                static_cast<int>(std::clamp(1e6 / intervals, 20.0, 1000.0)), seed);
  FailureModel background = out.failures;
  background.save = std::min(save, kBackgroundSave);
  out.background_save = background.save;
  double background_interval = 0.0;
  background = plan(background, background_interval);
  out.background_ettr = ettr(background, background_interval);
  return out;
}

std::vector<RunOffer> offers_of(const Catalogue& catalogue, const RunCost& run) {
  const std::string& chip = run.cluster.chip.name;
  const RunWork& work = run.work;
  std::vector<std::string> providers;
  std::vector<RunOffer> out;
  for (Offer& offer :
       offers(catalogue, chip, work.useful_hours.value, work.devices, run.risk.failures, run.spot)) {
    providers.push_back(offer.price.provider);
    if (!run.options.provider.empty() && offer.price.provider != run.options.provider) continue;
    const bool elsewhere = !run.options.region.empty() && !offer.price.region.empty() &&
                           offer.price.region != run.options.region;
    if (elsewhere) continue;
    const double paid = offer.hours.total() / offer.hours.useful;
    RunOffer priced;
    priced.cost = {offer.price.low * work.useful_hours.low * paid,
                   offer.price.high * work.useful_hours.high * paid};
    priced.offer = std::move(offer);
    out.push_back(std::move(priced));
  }
  if (!run.options.provider.empty() && out.empty()) {
    std::sort(providers.begin(), providers.end());
    providers.erase(std::unique(providers.begin(), providers.end()), providers.end());
    const auto nearest = nearest_name(run.options.provider, providers);
    throw ConfigError(
        "[--provider] found \"{}\", expected {} for {}{}; add a [[price]] to a cluster file for another one",
        run.options.provider, providers.empty() ? "none" : fmt::format("{}", fmt::join(providers, ", ")),
        chip, nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : "");
  }
  return out;
}

std::vector<RegionUse> regions_of(const Catalogue& catalogue, const RunCost& run) {
  std::vector<RegionUse> out;
  if (!run.options.region.empty()) out.push_back({find_region(catalogue, run.options.region), {}, {}, {}});
  if (!run.cluster.chip.power.known()) return {};
  if (out.empty()) {
    for (const Region& region : catalogue.regions) out.push_back({region, {}, {}, {}});
  }
  // Devices also draw power while the run saves and restarts.
  const Interval paid = scaled(run.work.useful_hours, 1 / run.risk.ettr);
  for (RegionUse& use : out) {
    use.low = energy_of(run.cluster, use.region, paid.low);
    use.middle = energy_of(run.cluster, use.region, paid.value);
    use.high = energy_of(run.cluster, use.region, paid.high);
  }
  std::stable_sort(out.begin(), out.end(), [](const RegionUse& a, const RegionUse& b) {
    return a.region.co2_per_kwh.value < b.region.co2_per_kwh.value;
  });
  return out;
}

MoneyRange price_range(const std::vector<RunOffer>& offers) {
  MoneyRange out{INFINITY, 0.0};
  for (const RunOffer& offer : offers) {
    if (!std::isfinite(offer.cost.high)) continue;
    out.low = std::min(out.low, offer.offer.price.low);
    out.high = std::max(out.high, offer.offer.price.high);
  }
  return out.high > 0 ? out : MoneyRange{};
}

void add_campaign(RunCost& run) {
  const PricingOptions& options = run.options;
  run.campaign_is_final_run = options.ablations == 0 && options.failure_share == 0;
  const double final_hours = run.work.useful_hours.value / run.risk.ettr;
  std::vector<CampaignItem> items{
      {.name = "final run", .device_hours = final_hours, .failure_share = options.failure_share}};
  if (options.ablations > 0) {
    items.push_back({.name = "ablations",
                     .device_hours = final_hours * options.ablation_share,
                     .count = options.ablations,
                     .failure_share = options.failure_share});
  }
  run.campaign = campaign_cost(items, price_range(run.offers));
}

}  // namespace

MfuBand typical_mfu(const ChipSpec& chip, bool mixture) {
  const auto band = [](double low, double high, std::string source) {
    return MfuBand{{(low + high) / 2, low, high}, std::move(source)};
  };
  if (mixture) {
    return band(kMixtureLow, kMixtureHigh,
                "2 published bf16 runs of mixtures on H100; few, so measure your own");
  }
  for (const PublishedBand& known : kBands) {
    if (std::find(known.chips.begin(), known.chips.end(), chip.name) != known.chips.end())
      return band(known.low, known.high, std::string(known.source));
  }
  return band(kAllLow, kAllHigh, "no published band for this chip: the range over A100, H100 and GB200 runs");
}

TrainingPeak training_peak(const ChipSpec& chip) {
  for (const Precision dtype : {Precision::kBf16, Precision::kFp16}) {
    const Figure& peak = chip.peak_of(dtype);
    if (peak.known() && peak.value > 0) return {peak.value, dtype};
  }
  throw ConfigError("[chip.{}.peak] found neither bf16 nor fp16, expected a rate such as \"989 TFLOP/s\"",
                    chip.name);
}

Interval useful_hours(double flops, const ChipSpec& chip, const MfuBand& band) {
  const double peak = training_peak(chip).flops_per_s;
  return {device_hours(flops, peak, band.mfu.value), device_hours(flops, peak, band.mfu.high),
          device_hours(flops, peak, band.mfu.low)};
}

int64_t devices_for(const ClusterSpec& cluster, double hours, double params, double days) {
  if (!cluster.chip.memory.known()) {
    throw ConfigError("[chip.{}.memory] missing, expected a size such as \"80 GB\"; or set --gpus",
                      cluster.chip.name);
  }
  const double by_memory =
      kTrainingBytesPerParam * params / (hardware::kUsableMemory * cluster.chip.memory.value);
  const double by_time = hours / (days * 24);
  const double least = std::max({1.0, by_memory, by_time});
  if (cluster.devices_per_host > 1 && least <= 1) return 1;
  int64_t hosts = 1;
  while (static_cast<double>(hosts * cluster.devices_per_host) < least) hosts *= 2;
  return hosts * cluster.devices_per_host;
}

RunCost price_run(const Catalogue& catalogue, const ClusterSpec& cluster, const RunWork& work,
                  const PricingOptions& options) {
  check_memory(cluster, work);
  RunCost out{.cluster = cluster,
              .work = work,
              .options = options,
              .wall_hours = {},
              .risk = {},
              .storage = {},
              .offers = {},
              .spot = {},
              .regions = {},
              .campaign = {},
              .campaign_is_final_run = false};
  const double devices = static_cast<double>(work.devices);
  out.storage = storage_of(cluster, {.params = work.params, .devices = work.devices});
  const double save = work.save_seconds.value_or(std::max(kShortestSave, out.storage.save_seconds));
  if (!std::isfinite(save)) {
    throw ConfigError(
        "[cluster.{}.storage_write_per_host] missing, expected a bandwidth such as \"2 GB/s\"; "
        "or set --save-seconds",
        cluster.name);
  }
  out.risk = risk_of(cluster, work, save, options.seed);
  out.wall_hours = scaled(work.useful_hours, 1 / (devices * out.risk.ettr));
  // The storage must keep up with saves in the background once an interval, and with the loader.
  out.storage = storage_of(cluster, {.params = work.params,
                                     .devices = work.devices,
                                     .save_budget = std::max(out.risk.interval, save),
                                     .tokens_per_s = work.tokens / (work.useful_hours.low / devices * 3600)});
  out.spot = {.interruptions_per_device_day = options.spot_hosts_per_month / kDaysPerMonth /
                                              static_cast<double>(cluster.devices_per_host),
              .wait = kSpotWait,
              .notice = kSpotNotice};
  out.offers = offers_of(catalogue, out);
  out.regions = regions_of(catalogue, out);
  add_campaign(out);
  return out;
}

}  // namespace strata::planning
