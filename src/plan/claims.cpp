#include "plan/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "plan/batch_laws.h"
#include "plan/cost.h"
#include "plan/laws.h"
#include "plan/risk.h"
#include "plan/scale_report.h"

namespace strata::planning {
namespace {

constexpr ClaimSource kSources[] = {
    {"guide 0", "pre-training guide (mixtures of experts, DeepSeek-V3 and Llama 4)"},
    {"guide 1", "article of AMD and Meta on TorchTitan and MI325X"},
    {"guide 2", "guide to models above 100B parameters"},
    {"guide 3", "notes on parallelisms and failed runs"},
    {"guide 4", "course page on pretraining at scale"},
    {"DeepSeek-V3", "arXiv 2412.19437"},
    {"Llama 3", "arXiv 2407.21783 and the model card of Llama 3.1"},
    {"GPT-3", "arXiv 2005.14165"},
    {"LLaMA", "arXiv 2302.13971, table 15"},
    {"PaLM", "arXiv 2204.02311"},
    {"Chinchilla", "arXiv 2203.15556"},
    {"RSC", "arXiv 2410.21680"},
    {"OPT", "arXiv 2205.01068 and its logbook"},
};

constexpr double kHour = 3600, kDay = 86400;
constexpr double kGpt3Flops = 3.15e23;
// The highest MFU of data/planning/published_runs.csv against the peak of the dtype used: MaxText, 32B on 128
// TPU v5p.
constexpr double kHighestMfu = 0.7147;

double peak(const Catalogue& catalogue, std::string_view chip, Precision dtype = Precision::kBf16) {
  return find_chip(catalogue, chip).peak_of(dtype).value;
}
Interval one(double value) {
  return {value, value, value};
}
Interval between(double low, double high) {
  return {(low + high) / 2, low, high};
}

// GB of the training state of 70B parameters on one of TP 8 x PP 4 devices.
Interval state_of_70b(double bytes_per_param) {
  return one(70e9 / (8 * 4) * bytes_per_param / 1e9);
}

// Tokens a device and gather round at which computing takes as long as gathering weights (guide 3): `bytes` an
// element, H100 at half of its peak, 8 NICs of 50 GB/s in a host.
Interval crossover(const Catalogue& catalogue, double bytes) {
  return one(bytes * 3 * 0.5 * peak(catalogue, "h100-sxm") / (6 * 8 * 50e9));
}

double guide_power_laws(double flops) {
  return 6 * PowerLaw{0.1174, 0.4999}.at(flops) * PowerLaw{1.6972, 0.5001}.at(flops);
}

struct Claim {
  std::string_view id, source, claim, formula, unit;
  double published = 0.0;
  double tolerance = 0.01;  // of the published value, from its rounding
  Interval (*compute)(const Catalogue&) = nullptr;
  std::string_view why = {};
  bool conflict = false;
  bool share_of_peak = false;
};

constexpr Claim kGuideClaims[] = {
    {"mi325x-mfu", "guide 0", "DeepSeek-V3 on 1024 MI325X: 1.8M tokens/s, MFU 48 %",
     "1.8e6 / 1024 * 2.2e11 to 2.5e11 FLOPs a token / bf16 peak of MI325X", "", 0.48, 0.01,
     [](const Catalogue& c) {
       const double rate = 1.8e6 / 1024 / peak(c, "mi325x");
       return between(rate * 2.2e11, rate * 2.5e11);
     },
     "the speed is 30 to 34 % of the bf16 peak, half of that of fp8", false, true},
    {"llama4-405b-mfu", "guide 0", "405B on 2048 H100: 3.2M tokens/s, MFU 52 %",
     "6 * 405e9 * 3.2e6 / 2048 / bf16 peak of H100", "", 0.52, 0.01,
     [](const Catalogue& c) { return one(training_flops(405e9, 3.2e6) / 2048 / peak(c, "h100-sxm")); },
     "it needs 3797 TFLOP/s a device, 3.8 times the peak", false, true},
    {"speed-and-mfu", "guide 0", "50 to 100 TFLOP/s a GPU and MFU of 40 to 55 %",
     "0.40 * bf16 peak of A100, the slowest of the GPUs that the guides list with bf16", "TFLOP/s", 100, 0.01,
     [](const Catalogue& c) { return one(0.40 * peak(c, "a100-80") / 1e12); },
     "no listed GPU has both: 40 % is 125 TFLOP/s on A100 and 396 on H100"},
    {"kernel-speedup", "guide 1", "attention +15 %, fp8 GEMM +102 %, grouped GEMM +60 %: 2.77 times in total",
     "1.15 * 2.02 * 1.60", "x", 2.77, 0.01, [](const Catalogue&) { return one(1.15 * 2.02 * 1.60); },
     "2.77 is the sum of the gains, 1 + 0.15 + 1.02 + 0.60; gains of one step multiply"},
    {"scaling-base", "guide 1", "96 % of linear scaling to 1024 GPUs, from 128 (list) or from 256 (text)",
     "the other number of GPUs", "GPUs", 128, 0.0, [](const Catalogue&) { return one(256); },
     "the article contradicts itself; both are kept", true},
    {"layers", "guide 1", "DeepSeek-V3 with 64 layers", "num_hidden_layers of its config.json", "layers", 64,
     0.0, [](const Catalogue&) { return one(61); },
     "61 layers and one for multi-token prediction; 64 = 2 * PP 8 * VPP 4: padded or miscounted"},
    {"power-laws", "guide 2", "N = 0.1174 C^0.4999 and D = 1.6972 C^0.5001 are optimal for C = 6 N D",
     "6 N D / C at 5.76e23 FLOPs", "", 1.0, 0.01,
     [](const Catalogue&) { return one(guide_power_laws(5.76e23) / 5.76e23); },
     "the two laws together use 1.195 times the budget"},
    {"llama2-flops", "guide 2", "LLaMA-2 7B on 2T tokens: 8.4e22 FLOPs", "6 * 7e9 * 2e12", "FLOPs", 8.4e22,
     0.01, [](const Catalogue&) { return one(training_flops(7e9, 2e12)); }},
    {"v100-peak", "guide 2", "V100: 130 TFLOP/s", "data sheet, fp16; there is no bf16", "TFLOP/s", 130, 0.01,
     [](const Catalogue& c) { return one(peak(c, "v100", Precision::kFp16) / 1e12); }},
    {"a10g-peak", "guide 2", "A10G: 125 TFLOP/s", "data sheet of A10G, bf16", "TFLOP/s", 125, 0.01,
     [](const Catalogue&) { return one(70); }, "125 is the rate of A10"},
    {"fsdp-crossover", "guide 3", "FSDP computes as long as it gathers at N_tot * 3 F / (6 N_act g B) tokens",
     "times 2 bytes an element; dense, H100 at half of its peak, 8 NICs of 50 GB/s", "tokens", 618.125, 0.01,
     [](const Catalogue& c) { return crossover(c, 2); },
     "the bytes an element are missing; otherwise it is the usual hierarchical bound"},
    {"batch-floor", "guide 3", "a critical batch of 10M tokens and 10k a sequence: at most 1000 data ranks",
     "10e6 / 10e3", "ranks", 1000, 0.01,
     [](const Catalogue&) { return one(static_cast<double>(most_data_ranks(10e6, 10'000))); }},
    {"gpt3-cost", "guide 4", "GPT-3 cost $4.6M",
     "3.15e23 FLOPs at 28 TFLOP/s a V100 (22 % of the peak) and $1.50 an hour", "$", 4.6e6, 0.03,
     [](const Catalogue&) { return one(kGpt3Flops / (28e12 * kHour) * 1.50); },
     "$4.6M buys 3.07M V100 hours at $1.50, which is 28.5 TFLOP/s or 22.8 % of the peak: plausible"},
    {"a100-price", "guide 4", "512 A100 cost $20,480 an hour", "512 * the guide's highest list price", "$/h",
     20480, 0.01, [](const Catalogue& c) { return one(512 * prices_of(c, "a100-80").back().high); },
     "$40 a GPU and hour is ten times the list price"},
    {"memory-70b", "guide 4", "70B with TP 8 and PP 4 takes 58.3 GB a GPU", "70e9 / 32 * 16 bytes", "GB",
     58.3, 0.01, [](const Catalogue&) { return state_of_70b(16); }, "the guide's own code prints 35.0 GB"},
    {"memory-70b-zero", "guide 4", "the same with ZeRO over 8 ranks takes 31.7 GB",
     "70e9 / 32 * (2 + 2 + 12 / 8) bytes", "GB", 31.7, 0.01,
     [](const Catalogue&) { return state_of_70b(2 + 2 + 12.0 / 8); }, "the guide's own code prints 12.0 GB"},
    {"tokens-70b", "guide 4", "256 GPUs at 300 TFLOP/s train 70B at 183k tokens/s",
     "256 * 300e12 / (6 * 70e9)", "tokens/s", 183e3, 0.01,
     [](const Catalogue&) { return one(256 * 300e12 / training_flops(70e9, 1)); }},
    {"chinchilla-params", "guide 4", "6e23 FLOPs are best spent on 10B parameters",
     "20 tokens a parameter: sqrt(6e23 / 120)", "params", 10e9, 0.01,
     [](const Catalogue&) { return allocate_flops(find_allocation_law("rule-of-20"), 6e23).params; },
     "10B on 200B tokens need 1.2e22 FLOPs; 1e24 FLOPs would train 91B"},
    {"chinchilla-tokens", "guide 4", "6e23 FLOPs are best spent on 200B tokens", "20 * sqrt(6e23 / 120)",
     "tokens", 200e9, 0.01,
     [](const Catalogue&) { return allocate_flops(find_allocation_law("rule-of-20"), 6e23).tokens; }},
    {"llama-mfu-16k", "guide 4", "Llama 3 405B reached 43 % on 16,384 H100",
     "400 TFLOP/s of the paper's table 4 / bf16 peak of H100", "", 0.43, 0.01,
     [](const Catalogue& c) { return one(400e12 / peak(c, "h100-sxm")); },
     "the paper has 43 % on 8,192 GPUs and 41 % on 16,384", false, true},
    {"aim-90", "guide 4", "aim for an MFU above 90 %",
     "the highest of the published runs, MaxText 32B on TPU v5p; H100 bf16 reaches 0.61, A100 0.66", "", 0.90,
     0.01, [](const Catalogue&) { return one(kHighestMfu); },
     "only fp8 runs measured against the bf16 peak come near (0.94)", false, true},
};

constexpr Claim kReportClaims[] = {
    {"dsv3-speed", "DeepSeek-V3", "14.8T tokens in 2.664M H800 hours: 1543 tokens/s a GPU",
     "14.8e12 / (2.664e6 * 3600)", "tokens/s", 1543, 0.001,
     [](const Catalogue&) { return one(tokens_per_device_second(14.8e12, 2.664e6)); }},
    {"dsv3-hours", "DeepSeek-V3", "pre-training took 2.664M H800 hours",
     "14.8T tokens * 180k hours a trillion", "hours", 2.664e6, 0.001,
     [](const Catalogue&) { return one(14.8 * 180e3); }},
    {"dsv3-cost", "DeepSeek-V3", "the model cost $5.576M",
     "(2.664M + 0.119M + 0.005M) hours * the catalogue's price of H800", "$", 5.576e6, 0.001,
     [](const Catalogue& c) {
       return one((2.664e6 + 0.119e6 + 0.005e6) * prices_of(c, "h800").front().low);
     }},
    {"llama-overall", "Llama 3", "405B in 30.84M H100 hours: 140.5 tokens/s a GPU overall",
     "15.6e12 / (30.84e6 * 3600)", "tokens/s", 140.5, 0.001,
     [](const Catalogue&) { return one(tokens_per_device_second(15.6e12, 30.84e6)); }},
    {"llama-in-run", "Llama 3", "about 170 tokens/s a GPU within the run",
     "43 % of the bf16 peak of H100 / 2.52e12 FLOPs a token", "tokens/s", 170, 0.02,
     [](const Catalogue& c) { return one(0.43 * peak(c, "h100-sxm") / 2.52e12); },
     "the overall rate is 0.83 of it: failures, and work other than the final run"},
    {"gpt3-compute", "GPT-3", "3640 PF-days", "6 * 175e9 * 300e9 / 8.64e19", "PF-days", 3640, 0.005,
     [](const Catalogue&) { return one(training_flops(175e9, 300e9) / kPetaflopDay); }},
    {"llama-energy", "LLaMA", "65B took 449 MWh", "1,022,362 hours * power of A100 * PUE 1.1", "MWh", 449,
     0.005,
     [](const Catalogue& c) {
       return one(energy_kwh(1022362, find_chip(c, "a100-80").power.value, 1.1) / 1e3);
     }},
    {"llama-co2", "LLaMA", "65B emitted 173 t of CO2", "449 MWh * 0.385 kg/kWh", "t", 173, 0.005,
     [](const Catalogue& c) {
       return one(energy_kwh(1022362, find_chip(c, "a100-80").power.value, 1.1) *
                  find_region(c, "us-meta").co2_per_kwh.value / 1e3);
     }},
    {"palm-mfu",
     "PaLM",
     "540B on 6144 TPU v4 at 238.3k tokens/s: MFU 46.2 %",
     "238.3e3 * (6 * 540.35e9 + 12 * 118 * 12288 * 2048) / (6144 * peak of TPU v4)",
     "",
     0.462,
     0.003,
     [](const Catalogue& c) {
       return one(238.3e3 * (6 * 540.35e9 + 12.0 * 118 * 12288 * 2048) / (6144 * peak(c, "tpu-v4")));
     },
     {},
     false,
     true},
    {"chinchilla-40b", "Chinchilla", "approach 3 assigns 40B parameters to 5.76e23 FLOPs",
     "the coefficients of the replication, Epoch AI (arXiv 2404.10102)", "params", 40e9, 0.02,
     [](const Catalogue&) {
       return one(allocate_flops(find_allocation_law("chinchilla"), 5.76e23).params.value);
     },
     "the fit had stopped early; the unrounded coefficients give 40.3B and the printed ones 32.2B"},
    {"mttf-16k", "RSC", "jobs of 16,384 GPUs fail every 1.8 h",
     "86400 / (2048 hosts * 0.0065 failures a host and day)", "h", 1.8, 0.01,
     [](const Catalogue&) { return one(mttf_of_nodes(2048, 6.5e-3) / kHour); }},
    {"mttf-1k", "RSC", "jobs of 1024 GPUs failed every 7.9 h",
     "86400 / (128 hosts * 0.0065 failures a host and day)", "h", 7.9, 0.01,
     [](const Catalogue&) { return one(mttf_of_nodes(128, 6.5e-3) / kHour); },
     "jobs fail more often than their hosts predict; plans use the measured rate of a job of similar size"},
    {"ettr-1k", "RSC", "1024 GPUs with saves of 60 s and restarts of 5 min: ETTR 0.964",
     "(1 - (u + I/2) / M) / (1 + w/I) at the interval I = sqrt(2 w M)", "", 0.964, 0.001,
     [](const Catalogue&) {
       const FailureModel failures{.mttf = mttf_of_nodes(128, 6.5e-3), .restart = 300, .save = 60};
       return one(ettr_linear(failures, young_interval(60, failures.mttf)));
     }},
    {"llama-mttf", "Llama 3", "419 unexpected interruptions in 54 days on 16,384 GPUs",
     "failures a host and day of the catalogue's H100 cluster * 2048 hosts * 54 days", "failures", 419, 0.01,
     [](const Catalogue& c) {
       return one(54 * kDay / mttf_of_nodes(2048, find_cluster(c, "h100-sxm").failures_per_node_day.value));
     }},
    {"opt-ettr", "OPT", "25 ideal days took 57 days: ETTR 0.44", "25 / 57", "", 0.44, 0.01,
     [](const Catalogue&) { return one(25.0 / 57); }},
};

CheckedClaim check(const Claim& claim, const Catalogue& catalogue) {
  CheckedClaim out{.id = claim.id,
                   .source = claim.source,
                   .claim = claim.claim,
                   .formula = claim.formula,
                   .unit = claim.unit,
                   .published = claim.published,
                   .computed = claim.compute(catalogue),
                   .ratio = 0.0,
                   .verdict = Verdict::kRight,
                   .why = claim.why};
  // A law without a published uncertainty has no interval.
  if (!std::isfinite(out.computed.low)) out.computed = one(out.computed.value);
  out.ratio = out.published / out.computed.value;
  const double margin = claim.tolerance * claim.published;
  if (claim.conflict) {
    out.verdict = Verdict::kConflict;
  } else if (claim.share_of_peak && out.computed.low > 1) {
    out.verdict = Verdict::kImpossible;
  } else if (out.published + margin < out.computed.low || out.published - margin > out.computed.high) {
    out.verdict = Verdict::kOff;
  }
  return out;
}

std::string claim_number(double value) {
  if (value >= 1e18) return fmt::format("{:.3g}", value);
  if (value >= 1e5) return human_count(value);
  if (value >= 100) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

std::string claim_value(const Interval& computed) {
  const std::string low = claim_number(computed.low), high = claim_number(computed.high);
  return low == high ? claim_number(computed.value) : low + " to " + high;
}

size_t count_of(std::span<const CheckedClaim> claims, Verdict verdict) {
  return static_cast<size_t>(std::count_if(
      claims.begin(), claims.end(), [&](const CheckedClaim& claim) { return claim.verdict == verdict; }));
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kRight:
      return "right";
    case Verdict::kOff:
      return "off";
    case Verdict::kImpossible:
      return "impossible";
    case Verdict::kConflict:
      return "conflict";
  }
  return "";
}

std::span<const ClaimSource> claim_sources() {
  return kSources;
}

std::vector<CheckedClaim> check_claims(const Catalogue& catalogue) {
  std::vector<CheckedClaim> out;
  for (const Claim& claim : kGuideClaims) out.push_back(check(claim, catalogue));
  for (const Claim& claim : kReportClaims) out.push_back(check(claim, catalogue));
  return out;
}

std::string to_text(std::span<const CheckedClaim> claims) {
  std::string text = fmt::format("{:<11}{:<12}{:>10} {:>14}  {:<9}{:>7}  {}\n", "verdict", "source",
                                 "published", "computed", "", "ratio", "claim");
  for (const CheckedClaim& claim : claims) {
    text += fmt::format("{:<11}{:<12}{:>10} {:>14}  {:<9}{:>7.3g}  {}\n", to_string(claim.verdict),
                        claim.source, claim_number(claim.published), claim_value(claim.computed), claim.unit,
                        claim.ratio, claim.claim);
    if (claim.verdict != Verdict::kRight)
      text += fmt::format("{:<11}{:<12}computed as {}\n", "", "", claim.formula);
    if (!claim.why.empty()) text += fmt::format("{:<11}{:<12}{}\n", "", "", claim.why);
  }
  text += fmt::format("\n{} claims: {} right, {} off, {} impossible, {} in conflict\n", claims.size(),
                      count_of(claims, Verdict::kRight), count_of(claims, Verdict::kOff),
                      count_of(claims, Verdict::kImpossible), count_of(claims, Verdict::kConflict));
  for (const ClaimSource& source : kSources) text += fmt::format("{:<12}{}\n", source.name, source.title);
  return text;
}

nlohmann::ordered_json json_of(std::span<const CheckedClaim> claims) {
  nlohmann::ordered_json out{{"claims", nlohmann::ordered_json::array()}};
  for (const CheckedClaim& claim : claims) {
    out["claims"].push_back({{"id", claim.id},
                             {"source", claim.source},
                             {"claim", claim.claim},
                             {"formula", claim.formula},
                             {"unit", claim.unit},
                             {"published", claim.published},
                             {"computed", claim.computed.value},
                             {"low", claim.computed.low},
                             {"high", claim.computed.high},
                             {"ratio", claim.ratio},
                             {"verdict", to_string(claim.verdict)},
                             {"why", claim.why}});
  }
  for (const Verdict verdict : {Verdict::kRight, Verdict::kOff, Verdict::kImpossible, Verdict::kConflict})
    out[std::string(to_string(verdict))] = count_of(claims, verdict);
  return out;
}

}  // namespace strata::planning
