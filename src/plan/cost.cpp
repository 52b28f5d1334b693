#include "plan/cost.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace strata::planning {

double training_flops(double active_params, double tokens, double attention_share) {
  return 6 * active_params * tokens * (1 + attention_share);
}

double device_hours(double flops, double peak_flops_per_s, double mfu) {
  return flops / (peak_flops_per_s * mfu * 3600);
}

double tokens_per_device_second(double tokens, double hours) {
  return tokens / (hours * 3600);
}

PaidHours paid_hours(double useful_hours, double ettr) {
  if (!(ettr > 0))
    throw ConfigError("[ettr] found {}, expected a fraction above 0: the run makes no progress", ettr);
  return {.useful = useful_hours, .overhead = useful_hours * (1 / ettr - 1)};
}

FailureModel on_spot(const FailureModel& failures, const SpotTerms& spot, int64_t devices) {
  FailureModel out = failures;
  if (spot.interruptions_per_device_day <= 0) return out;
  const double mttf = 86400 / (spot.interruptions_per_device_day * static_cast<double>(devices));
  if (spot.notice >= failures.save) {
    out.preemption_mttf = mttf;
  } else {
    out.mttf = failures.mttf > 0 ? 1 / (1 / failures.mttf + 1 / mttf) : mttf;
  }
  return out;
}

std::vector<Offer> offers(const Catalogue& catalogue, std::string_view chip, double useful_hours,
                          int64_t devices, const FailureModel& failures, const SpotTerms& spot) {
  std::vector<Offer> out;
  for (const Price& price : prices_of(catalogue, chip)) {
    const bool is_spot = price.terms == Terms::kSpot;
    const FailureModel model = is_spot ? on_spot(failures, spot, devices) : failures;
    Offer offer;
    offer.price = price;
    offer.ettr = ettr(model, best_interval(model));
    offer.hours = offer.ettr > 0 ? paid_hours(useful_hours, offer.ettr)
                                 : PaidHours{.useful = useful_hours, .overhead = INFINITY};
    offer.cost = {price.low * offer.hours.total(), price.high * offer.hours.total()};
    const double per_day = is_spot ? spot.interruptions_per_device_day * static_cast<double>(devices) : 0.0;
    offer.wall_hours = offer.hours.total() / static_cast<double>(devices) * (1 + per_day * spot.wait / 86400);
    out.push_back(std::move(offer));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Offer& a, const Offer& b) { return a.cost.low < b.cost.low; });
  return out;
}

double energy_kwh(double hours, double watts, double pue) {
  return hours * watts * pue / 1000;
}

Energy energy_of(const ClusterSpec& cluster, const Region& region, double hours, double utilisation) {
  if (!cluster.chip.power.known()) {
    throw ConfigError("[chip.{}.power] missing, expected a power such as \"700 W\"; set it in a cluster file",
                      cluster.chip.name);
  }
  const double host = cluster.host_power.value / static_cast<double>(cluster.devices_per_host);
  const double pue = cluster.pue.known() ? cluster.pue.value : 1.0;
  Energy out;
  out.kwh = energy_kwh(hours, cluster.chip.power.value * utilisation + host, pue);
  out.co2_kg = out.kwh * region.co2_per_kwh.value;
  out.usd = out.kwh * region.usd_per_kwh.value;
  return out;
}

Storage storage_of(const ClusterSpec& cluster, const StorageNeeds& needs) {
  const double hosts =
      std::ceil(static_cast<double>(needs.devices) / static_cast<double>(cluster.devices_per_host));
  Storage out;
  out.checkpoint_bytes = needs.params * needs.bytes_per_param;
  out.write_bytes_per_s = hosts * cluster.storage_write_per_host.value;
  out.save_seconds = out.write_bytes_per_s > 0 ? out.checkpoint_bytes / out.write_bytes_per_s : INFINITY;
  out.kept_bytes = out.checkpoint_bytes * static_cast<double>(needs.kept);
  out.needed_write_bytes_per_s = out.checkpoint_bytes / needs.save_budget;
  out.loader_bytes_per_s = needs.tokens_per_s * needs.bytes_per_token;
  const double read = hosts * cluster.storage_read_per_host.value;
  out.loader_share = read > 0 ? out.loader_bytes_per_s / read : INFINITY;
  return out;
}

CampaignCost campaign_cost(const std::vector<CampaignItem>& items, const MoneyRange& usd_per_hour) {
  CampaignCost out;
  for (const CampaignItem& item : items) {
    if (!(item.failure_share >= 0 && item.failure_share < 1) || item.device_hours < 0 || item.count < 0) {
      throw ConfigError(
          "[campaign {}] found {} device hours, {} times, {} of them failing, expected numbers of at least 0 "
          "and a fraction of failures below 1",
          item.name, item.device_hours, item.count, item.failure_share);
    }
    const double attempts = item.failure_share / (1 - item.failure_share);
    const double failed = item.device_hours * item.count * attempts * item.failed_at;
    out.failed_hours += failed;
    out.device_hours += item.device_hours * item.count + failed;
  }
  if (!items.empty() && items.front().device_hours > 0)
    out.multiple = out.device_hours / items.front().device_hours;
  out.cost = {out.device_hours * usd_per_hour.low, out.device_hours * usd_per_hour.high};
  return out;
}

}  // namespace strata::planning
