// The cost of a run: device hours, money by provider, energy, CO2, storage, and the campaign around it.
//
// FLOPs are training FLOPs; times are in seconds unless a name contains "hours"; money is in dollars at the
// dates of the prices.
#pragma once

#include <string>
#include <vector>

#include "plan/catalogue.h"
#include "plan/risk.h"

namespace strata::planning {

// 6 N_active D (1 + attention_share). N_active: the parameters in one token's matmuls. attention_share: the
// FLOPs of attention relative to those of these matmuls.
double training_flops(double active_params, double tokens, double attention_share = 0.0);
// FLOPs / (peak * MFU * 3600); ignores failures.
double device_hours(double flops, double peak_flops_per_s, double mfu);
// Tokens/s of one device when `tokens` take `device_hours`.
double tokens_per_device_second(double tokens, double device_hours);

struct MoneyRange {
  double low = 0.0;
  double high = 0.0;
};

// Paid device hours by purpose.
struct PaidHours {
  double useful = 0.0;    // of steps that survive
  double overhead = 0.0;  // saves, lost steps and restarts: useful * (1/ETTR - 1)
  double total() const { return useful + overhead; }
};
PaidHours paid_hours(double useful_hours, double ettr);

// One offer for a run.
struct Offer {
  Price price;
  PaidHours hours;
  double wall_hours = 0.0;  // from start to end; includes waits for spot devices, which are not paid
  double ettr = 1.0;        // useful over paid
  MoneyRange cost;
};
struct SpotTerms {
  double interruptions_per_device_day = 0.0;  // interruptions of a job, per device and day
  double wait = 0.0;                          // s until the devices are back
  double notice = 0.0;                        // s of notice; work is lost if a save takes longer
};
// One offer for each price of a chip, cheapest first. Spot offers add the failures of `spot`. `useful_hours`
// are device hours. An offer whose run never finishes has infinite hours and cost.
std::vector<Offer> offers(const Catalogue& catalogue, std::string_view chip, double useful_hours,
                          int64_t devices, const FailureModel& failures, const SpotTerms& spot);
// The failures of a job on spot devices while it has them; waits are not included, because they are not paid.
FailureModel on_spot(const FailureModel& failures, const SpotTerms& spot, int64_t devices);

struct Energy {
  double kwh = 0.0;
  double co2_kg = 0.0;
  double usd = 0.0;  // of electricity, for owned machines
};
// device hours * (device W * utilisation + host W / devices per host) * PUE. `utilisation` is mean power over
// the limit. ConfigError if the power of the chip is not known. CO2 and dollars are 0 if the region has no
// figure for them.
Energy energy_of(const ClusterSpec& cluster, const Region& region, double device_hours,
                 double utilisation = 1.0);
// kWh = hours * W * PUE / 1000 (LLaMA, arXiv 2302.13971, section 6).
double energy_kwh(double device_hours, double watts, double pue);

struct Storage {
  double checkpoint_bytes = 0.0;
  double save_seconds = 0.0;              // all hosts write together
  double kept_bytes = 0.0;                // all checkpoints on disk
  double write_bytes_per_s = 0.0;         // of all hosts of the cluster together
  double needed_write_bytes_per_s = 0.0;  // for saves of `save_budget` seconds
  double loader_bytes_per_s = 0.0;        // reads of tokens, all hosts together
  double loader_share = 0.0;              // loader_bytes_per_s over the read bandwidth of the storage
};
// Checkpoint bytes per parameter: an fp32 master weight, two fp32 moments and a bf16 weight make 14;
// published checkpoints have 13 to 13.6.
inline constexpr double kCheckpointBytesPerParam = 14.0;
struct StorageNeeds {
  double params = 0.0;
  double bytes_per_param = kCheckpointBytesPerParam;
  int64_t devices = 1;
  int64_t kept = 1;              // checkpoints on disk
  double save_budget = 60.0;     // s
  double tokens_per_s = 0.0;     // of the entire job
  double bytes_per_token = 2.0;  // in a token file
};
Storage storage_of(const ClusterSpec& cluster, const StorageNeeds& needs);

// One kind of run in a campaign. The first item is the final run.
struct CampaignItem {
  std::string name;
  double device_hours = 0.0;   // of one successful run
  double count = 1.0;          // successful runs
  double failure_share = 0.0;  // fraction of attempts that fail, 0 to below 1
  double failed_at = 0.5;      // fraction of device_hours that a failed attempt takes
};
struct CampaignCost {
  double device_hours = 0.0;
  double failed_hours = 0.0;  // part of device_hours
  double multiple = 0.0;      // device_hours over those of the final run
  MoneyRange cost;
};
// Assumes share/(1 - share) failed attempts per successful run.
CampaignCost campaign_cost(const std::vector<CampaignItem>& items, const MoneyRange& usd_per_hour);

}  // namespace strata::planning
