// The cost of a run for people and programs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "plan/run_cost.h"
#include "plan/scale_report.h"

namespace strata::planning {
namespace {

using CostJson = nlohmann::ordered_json;

// "1.31M to 1.62M", or one number if both are equal.
std::string range_text(double low, double high) {
  const std::string from = human_count(low), to = human_count(high);
  return from == to ? from : fmt::format("{} to {}", from, to);
}

std::string dollars(const MoneyRange& range) {
  const std::string from = human_count(range.low), to = human_count(range.high);
  return from == to ? "$" + from : fmt::format("${} to ${}", from, to);
}

std::string wall_text(double hours) {
  return hours < 96 ? fmt::format("{:.3g} h", hours) : fmt::format("{:.3g} d", hours / 24);
}

// "64.7 to 90.2 MWh"
std::string energy_range(double low_kwh, double high_kwh) {
  const auto [unit, name] = high_kwh >= 1e6   ? std::pair{1e6, "GWh"}
                            : high_kwh >= 1e3 ? std::pair{1e3, "MWh"}
                                              : std::pair{1.0, "kWh"};
  const std::string low = fmt::format("{:.3g}", low_kwh / unit),
                    high = fmt::format("{:.3g}", high_kwh / unit);
  return low == high ? fmt::format("{} {}", low, name) : fmt::format("{} to {} {}", low, high, name);
}

// "25 to 35 t"
std::string tonnes(double low_kg, double high_kg) {
  const auto shown = [](double kg) {
    return kg < 1e6 ? fmt::format("{:.3g}", kg / 1e3) : human_count(kg / 1e3);
  };
  return shown(low_kg) == shown(high_kg) ? shown(low_kg) + " t"
                                         : fmt::format("{} to {} t", shown(low_kg), shown(high_kg));
}

// With two digits below ten seconds.
std::string pause_text(double seconds) {
  return seconds < 10 ? fmt::format("{:.2g} s", seconds) : human_duration(seconds);
}

std::string_view terms_text(Terms terms) {
  return terms == Terms::kOnDemand ? "on demand" : terms == Terms::kReserved ? "reserved" : "spot";
}

void cost_row(std::string& text, std::string_view name, std::string value) {
  value.erase(value.find_last_not_of(' ') + 1);  // columns may end in blanks
  text += fmt::format("{:<16}{}\n", name, value);
}

void risk_text(const RunCost& run, std::string& text) {
  const RunRisk& risk = run.risk;
  const bool fails = std::isfinite(risk.mttf.seconds());
  cost_row(text, "failures",
           fmt::format("{} ({}, {})",
                       fails ? "every " + wall_text(risk.mttf.seconds() / 3600) : std::string("none"),
                       risk.mttf.measured ? "measured jobs" : "by hosts", risk.mttf.source));
  cost_row(text, "checkpoint",
           fmt::format("{}, {} to save, {} to restart", human_bytes(run.storage.checkpoint_bytes),
                       pause_text(risk.failures.save), pause_text(risk.failures.restart)));
  std::string interval = pause_text(risk.interval);
  if (fails) {
    interval += fmt::format("; Young {}, Daly {}, with recovery {}", pause_text(risk.young),
                            pause_text(risk.daly), pause_text(risk.availability));
  }
  cost_row(text, "best interval", interval);
  cost_row(
      text, "ETTR",
      fmt::format("{:.3f} by formula, {:.3f} simulated with {:.3g} failures a run, {:.3f} to first order",
                  risk.ettr, risk.simulated.ettr, risk.simulated.failures_mean, risk.ettr_linear));
  if (risk.background_ettr > risk.ettr + 0.005) {
    cost_row(text, "",
             fmt::format("{:.3f} with saves in the background that block for {:.0f} s", risk.background_ettr,
                         risk.background_save));
  }
}

void offers_text(const RunCost& run, std::string& text) {
  if (run.offers.empty()) {
    cost_row(
        text, "offers",
        fmt::format("no price of {} is known; add a [[price]] to a cluster file", run.cluster.chip.name));
    return;
  }
  bool spot = false;
  for (const RunOffer& priced : run.offers) {
    const Price& price = priced.offer.price;
    spot = spot || price.terms == Terms::kSpot;
    const std::string rate = price.low == price.high ? fmt::format("${:.2f}", price.low)
                                                     : fmt::format("${:.2f}-{:.2f}", price.low, price.high);
    std::string remark;
    if (!std::isfinite(priced.cost.high)) {
      remark = "never finishes: interrupted too often";
    } else if (price.terms == Terms::kSpot) {
      remark = fmt::format("ETTR {:.3f}, {} from start to end", priced.offer.ettr,
                           wall_text(priced.offer.wall_hours));
    }
    cost_row(text, &priced == run.offers.data() ? "offers" : "",
             fmt::format("{:<10} {:<10} {:<12} {:<11} {:<22} {}", price.provider, terms_text(price.terms),
                         price.date + (price.region.empty() ? "" : " " + price.region), rate,
                         std::isfinite(priced.cost.high) ? dollars(priced.cost) : "", remark));
  }
  if (!spot) return;
  cost_row(text, "",
           fmt::format(
               "spot: {:g} interruptions of a host in a month (--spot-interruptions), {:.0f} s of notice, {} "
               "until another host",
               run.options.spot_hosts_per_month, run.spot.notice, human_duration(run.spot.wait)));
}

void energy_text(const RunCost& run, std::string& text) {
  if (run.regions.empty()) {
    cost_row(text, "energy",
             fmt::format("unknown: the power of {} is not published; set it in a cluster file",
                         run.cluster.chip.name));
    return;
  }
  const RegionUse& first = run.regions.front();
  cost_row(text, "energy",
           fmt::format("{}, {:g} W a device with {:.0f} W of its host, PUE {:g}",
                       energy_range(first.low.kwh, first.high.kwh), run.cluster.chip.power.value,
                       run.cluster.host_power.value / static_cast<double>(run.cluster.devices_per_host),
                       run.cluster.pue.known() ? run.cluster.pue.value : 1.0));
  // The cleanest, the dirtiest and some between them.
  constexpr size_t kShown = 5;
  const size_t count = std::min(kShown, run.regions.size());
  for (size_t i = 0; i < count; ++i) {
    const RegionUse& use = run.regions[count == 1 ? 0 : i * (run.regions.size() - 1) / (count - 1)];
    std::string line =
        fmt::format("{:<10} {:>4.0f} g/kWh  {}", use.region.name, 1e3 * use.region.co2_per_kwh.value,
                    tonnes(use.low.co2_kg, use.high.co2_kg));
    if (use.region.usd_per_kwh.known())
      line += fmt::format(", {} of electricity", dollars({use.low.usd, use.high.usd}));
    cost_row(text, i == 0 ? "CO2" : "", line);
  }
  if (count < run.regions.size())
    cost_row(text, "", fmt::format("{} of {} regions; --json has all", count, run.regions.size()));
}

void campaign_text(const RunCost& run, std::string& text) {
  if (run.offers.empty()) return;
  if (run.campaign_is_final_run) {
    cost_row(
        text, "campaign",
        fmt::format(
            "{} with ablations and failed runs, usually {:g} to {:g} times the final run (from memory)",
            dollars({kUsualCampaignLow * run.campaign.cost.low, kUsualCampaignHigh * run.campaign.cost.high}),
            kUsualCampaignLow, kUsualCampaignHigh));
    return;
  }
  cost_row(
      text, "campaign",
      fmt::format("{}, {:.2f} times the final run: {:g} ablations of {:g} % of it, {:g} % of the attempts "
                  "fail, {} device hours in them",
                  dollars(run.campaign.cost), run.campaign.multiple, run.options.ablations,
                  100 * run.options.ablation_share, 100 * run.options.failure_share,
                  human_count(run.campaign.failed_hours)));
}

CostJson json_of_interval(const Interval& interval) {
  return {{"value", interval.value}, {"low", interval.low}, {"high", interval.high}};
}

CostJson json_of(const RunRisk& risk) {
  return {{"mttf_s", json_number_or_null(risk.mttf.seconds())},
          {"mttf_source", risk.mttf.source},
          {"mttf_by_hosts_s", json_number_or_null(risk.mttf.formula)},
          {"restart_s", risk.failures.restart},
          {"save_s", risk.failures.save},
          {"interval_s", risk.interval},
          {"young_s", json_number_or_null(risk.young)},
          {"daly_s", json_number_or_null(risk.daly)},
          {"availability_s", json_number_or_null(risk.availability)},
          {"ettr", risk.ettr},
          {"goodput", risk.ettr},
          {"ettr_first_order", risk.ettr_linear},
          {"ettr_simulated", risk.simulated.ettr},
          {"failures", risk.simulated.failures_mean},
          {"background_save_s", risk.background_save},
          {"background_ettr", risk.background_ettr}};
}

}  // namespace

std::string to_text(const RunCost& run) {
  std::string text;
  cost_row(text, "device hours",
           range_text(run.work.useful_hours.low, run.work.useful_hours.high) +
               " useful; attention is not part of 6 N D");
  cost_row(text, "wall time",
           run.work.useful_hours.low == run.work.useful_hours.high
               ? wall_text(run.wall_hours.value)
               : fmt::format("{} to {}", wall_text(run.wall_hours.low), wall_text(run.wall_hours.high)));
  risk_text(run, text);
  cost_row(text, "storage",
           fmt::format("{}/s to write, {}/s needed; the loader reads {}/s, {:.2g} % of what storage offers",
                       human_bytes(run.storage.write_bytes_per_s),
                       human_bytes(run.storage.needed_write_bytes_per_s),
                       human_bytes(run.storage.loader_bytes_per_s), 100 * run.storage.loader_share));
  offers_text(run, text);
  campaign_text(run, text);
  energy_text(run, text);
  return text;
}

nlohmann::ordered_json json_of(const RunCost& run) {
  CostJson out{{"cluster", run.cluster.name},
               {"devices", run.work.devices},
               {"useful_hours", json_of_interval(run.work.useful_hours)},
               {"wall_hours", json_of_interval(run.wall_hours)},
               {"risk", json_of(run.risk)}};
  out["storage"] = {{"checkpoint_bytes", run.storage.checkpoint_bytes},
                    {"save_s", run.storage.save_seconds},
                    {"write_bytes_per_s", run.storage.write_bytes_per_s},
                    {"needed_write_bytes_per_s", run.storage.needed_write_bytes_per_s},
                    {"loader_bytes_per_s", run.storage.loader_bytes_per_s},
                    {"loader_share", run.storage.loader_share}};
  out["offers"] = CostJson::array();
  for (const RunOffer& priced : run.offers) {
    const Price& price = priced.offer.price;
    out["offers"].push_back(
        {{"provider", price.provider},
         {"region", price.region},
         {"terms", to_string(price.terms)},
         {"date", price.date},
         {"source", price.source},
         {"usd_per_hour", {{"low", price.low}, {"high", price.high}}},
         {"ettr", priced.offer.ettr},
         {"wall_hours", json_number_or_null(priced.offer.wall_hours)},
         {"usd",
          {{"low", json_number_or_null(priced.cost.low)}, {"high", json_number_or_null(priced.cost.high)}}}});
  }
  out["spot"] = {{"hosts_per_month", run.options.spot_hosts_per_month},
                 {"notice_s", run.spot.notice},
                 {"wait_s", run.spot.wait}};
  out["regions"] = CostJson::array();
  for (const RegionUse& use : run.regions) {
    const bool priced = use.region.usd_per_kwh.known();
    out["regions"].push_back(
        {{"region", use.region.name},
         {"kwh", {{"value", use.middle.kwh}, {"low", use.low.kwh}, {"high", use.high.kwh}}},
         {"co2_kg", {{"value", use.middle.co2_kg}, {"low", use.low.co2_kg}, {"high", use.high.co2_kg}}},
         {"electricity_usd", priced ? CostJson{{"low", use.low.usd}, {"high", use.high.usd}} : CostJson()}});
  }
  out["campaign"] = {{"device_hours", run.campaign.device_hours},
                     {"failed_hours", run.campaign.failed_hours},
                     {"multiple", run.campaign.multiple},
                     {"usd", {{"low", run.campaign.cost.low}, {"high", run.campaign.cost.high}}},
                     {"usual_multiple", {{"low", kUsualCampaignLow}, {"high", kUsualCampaignHigh}}}};
  return out;
}

}  // namespace strata::planning
