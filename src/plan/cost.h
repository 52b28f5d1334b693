// What a run costs: device hours, money by provider, energy, CO2, storage, and a campaign around it.
//
// FLOPs are those of training; times are in seconds unless a name says hours; money is in dollars of the
// prices' dates.
#pragma once

#include <string>
#include <vector>

#include "plan/catalogue.h"
#include "plan/risk.h"

namespace strata::plan {

// 6 N_active D (1 + attention share): N_active the parameters of one token's matmuls, the share what
// attention adds to them.
double training_flops(double active_params, double tokens, double attention_share = 0.0);
// FLOPs / (peak * MFU * 3600), without failures.
double device_hours(double flops, double peak_flops_per_s, double mfu);
// Tokens/s of one device when `tokens` take `device_hours`.
double tokens_per_device_second(double tokens, double device_hours);

struct MoneyRange {
  double low = 0.0;
  double high = 0.0;
};

// Device hours that are paid, by what they are paid for.
struct PaidHours {
  double useful = 0.0;    // of steps that survive
  double overhead = 0.0;  // of saves, lost steps and restarts: useful * (1/ETTR - 1)
  double total() const { return useful + overhead; }
};
PaidHours paid_hours(double useful_hours, double ettr);

// One offer for a run.
struct Offer {
  Price price;
  PaidHours hours;
  double wall_hours = 0.0;  // from start to end; with waits for spot devices, which are not paid
  double ettr = 1.0;        // useful over paid
  MoneyRange cost;
};
struct SpotTerms {
  double interruptions_per_device_day = 0.0;  // of a job, for each of its devices
  double wait = 0.0;                          // s until the devices are back
  double notice = 0.0;                        // s of warning: work is lost if a save takes longer
};
// The offers of all prices of a chip, cheapest first. Spot prices take the failures of `spot` on top.
// `useful_hours` are device hours.
std::vector<Offer> offers(const Catalogue& catalogue, std::string_view chip, double useful_hours,
                          int64_t devices, const FailureModel& failures, const SpotTerms& spot);
// The failures of a job on spot devices while it has them: waits are not paid and not part of it.
FailureModel on_spot(const FailureModel& failures, const SpotTerms& spot, int64_t devices);

struct Energy {
  double kwh = 0.0;
  double co2_kg = 0.0;
  double usd = 0.0;  // of electricity, for owned machines
};
// device hours * (device W * utilisation + host W / devices a host) * PUE. `utilisation` is mean power over
// the limit. ConfigError if the power of the chip is not known; CO2 and dollars are 0 where the region has
// none.
Energy energy_of(const ClusterSpec& cluster, const Region& region, double device_hours,
                 double utilisation = 1.0);
// The same by figures: kWh = hours * W * PUE / 1000 (LLaMA, arXiv 2302.13971, section 6).
double energy_kwh(double device_hours, double watts, double pue);

struct Storage {
  double checkpoint_bytes = 0.0;
  double save_seconds = 0.0;              // all hosts write together
  double kept_bytes = 0.0;                // of the checkpoints that are kept
  double write_bytes_per_s = 0.0;         // of all hosts, as the cluster has it
  double needed_write_bytes_per_s = 0.0;  // so that a save blocks `save_budget` seconds
  double loader_bytes_per_s = 0.0;        // that the tokens need, over all hosts
  double loader_share = 0.0;              // of the bandwidth that storage can read
};
// Bytes of a checkpoint for each parameter: fp32 master and two moments with bf16 weights make 14; published
// ones have 13 to 13.6.
inline constexpr double kCheckpointBytesPerParam = 14.0;
struct StorageNeeds {
  double params = 0.0;
  double bytes_per_param = kCheckpointBytesPerParam;
  int64_t devices = 1;
  int64_t kept = 1;              // checkpoints on disk
  double save_budget = 60.0;     // s
  double tokens_per_s = 0.0;     // of the whole job
  double bytes_per_token = 2.0;  // of a file of tokens
};
Storage storage_of(const ClusterSpec& cluster, const StorageNeeds& needs);

// Everything around the final run.
struct CampaignItem {
  std::string name;
  double device_hours = 0.0;   // of one, when it succeeds
  double count = 1.0;          // how many are wanted
  double failure_share = 0.0;  // of attempts that must be thrown away, 0 to below 1
  double failed_at = 0.5;      // how far a failed attempt gets
};
struct CampaignCost {
  double device_hours = 0.0;
  double failed_hours = 0.0;  // part of device_hours
  double multiple = 0.0;      // of the hours of the first item, the final run
  MoneyRange cost;
};
// Attempts until one succeeds: share/(1 - share) failed ones for each.
CampaignCost campaign_cost(const std::vector<CampaignItem>& items, const MoneyRange& usd_per_hour);

}  // namespace strata::plan
