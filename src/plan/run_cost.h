// Money and risk of one training run on a cluster: offers by provider, energy and CO2 by region, failures and
// ETTR, the best interval between checkpoints, storage, and the campaign around the run.
//
// Hours are device hours unless a name contains "wall"; "useful" hours exclude saves, lost steps and restarts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/cost.h"
#include "plan/published_laws.h"
#include "plan/risk.h"

namespace strata::planning {

// A range of the model-FLOP utilisation and its origin.
struct MfuBand {
  Interval mfu;  // of the dense peak; low = high if the user set it
  std::string source;
};
// The 25th to 75th percentile of published bf16 runs on the chip, recomputed with full attention (the bands of
// data/planning/published_runs.csv, November 2026). A chip without enough runs has the range over all dense
// groups, and the source states it. `mixture`: a model with experts.
MfuBand typical_mfu(const ChipSpec& chip, bool mixture = false);

// The peak for 16-bit matmuls: bf16, else fp16, in FLOP/s. ConfigError if the chip has neither.
struct TrainingPeak {
  double flops_per_s = 0.0;
  Precision dtype = Precision::kBf16;
};
TrainingPeak training_peak(const ChipSpec& chip);

// Useful device hours of a budget: the low end has the high MFU.
Interval useful_hours(double flops, const ChipSpec& chip, const MfuBand& band);

// The number of devices that hold weights, gradients and optimizer (16 bytes a parameter in 90 % of the
// memory) and finish in `days`: whole hosts, a power of two of them. ConfigError if the memory of the chip is
// not known.
int64_t devices_for(const ClusterSpec& cluster, double useful_hours, double params, double days);

struct RunWork {
  Interval useful_hours = {};
  int64_t devices = 1;
  double params = 0.0;  // all of them, for checkpoints
  double tokens = 0.0;
  // s for which a checkpoint blocks the run; nullopt: the whole checkpoint is written to storage meanwhile
  std::optional<double> save_seconds = {};
};

struct PricingOptions {
  std::string provider;  // empty: all
  std::string region;    // empty: all
  // Interruptions of a spot host in a month. Published averages are 0.05 to 0.1
  // (the bands of AWS's Spot Instance Advisor go from below 0.05 to above 0.2).
  double spot_hosts_per_month = 0.1;
  // Runs before the final one, and the share of attempts that fail.
  double ablations = 0.0;
  double ablation_share = 0.01;  // device hours of an ablation over those of the final run
  double failure_share = 0.0;
  uint64_t seed = 1;
};

struct RunRisk {
  Mttf mttf;
  FailureModel failures;
  double interval = 0.0;  // s, with the highest ETTR
  double young = 0.0, daly = 0.0, availability = 0.0;
  double ettr = 0.0;         // exact formula
  double ettr_linear = 0.0;  // the first-order formula of RSC
  SimulatedRuns simulated;
  // With saves in the background that block for `background_save` s.
  double background_save = 0.0, background_ettr = 0.0;
};

struct RunOffer {
  Offer offer;      // for the middle of the hours
  MoneyRange cost;  // from the lowest price and hours to the highest
};

struct RegionUse {
  Region region;
  Energy low, middle, high;  // for the ends and the middle of the hours
};

// Cost of a campaign with ablations and failed runs over that of its final run; from memory.
inline constexpr double kUsualCampaignLow = 1.5, kUsualCampaignHigh = 3.0;

struct RunCost {
  ClusterSpec cluster;
  RunWork work;
  PricingOptions options;
  Interval wall_hours;
  RunRisk risk;
  Storage storage;
  // Cheapest first; empty if no price of the chip is known. The cost of one that never finishes is infinite.
  std::vector<RunOffer> offers;
  SpotTerms spot;
  std::vector<RegionUse> regions;  // empty if the power of the chip is not known
  CampaignCost campaign;           // at the lowest and highest price of `offers`
  // True if no ablations and failures were given: `campaign` then is the final run only, and kUsualCampaign
  // times it is the usual cost.
  bool campaign_is_final_run = false;
};

// ConfigError for a provider or region that is unknown (with the nearest name), fewer devices than the model
// needs, or a run that never finishes because it fails too often.
RunCost price_run(const Catalogue& catalogue, const ClusterSpec& cluster, const RunWork& work,
                  const PricingOptions& options = {});

std::string to_text(const RunCost& cost);
nlohmann::ordered_json json_of(const RunCost& cost);

}  // namespace strata::planning
