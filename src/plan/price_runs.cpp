#include "plan/price_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"

namespace strata::planning {
namespace {

// Of the device's memory: the formulas' own error is below a quarter.
constexpr double kSurelyTooMuch = 1.25;

bool has_flag(const PublishedRun& run, std::string_view flag) {
  return std::find(run.flags.begin(), run.flags.end(), flag) != run.flags.end();
}

// The inputs of pricing only.
PublishedRun without_results(const PublishedRun& run) {
  PublishedRun out = run;
  out.tokens_per_s = out.tokens_per_s_per_gpu = out.tflops_per_gpu = {};
  out.mfu = out.step_time_s = out.memory_gb = {};
  out.id = out.source = out.notes = "";
  out.flags.clear();
  out.conflicts.clear();
  return out;
}

}  // namespace

RunPricer::RunPricer(Catalogue catalogue, Profiles profiles, std::vector<Architecture> architectures)
    : catalogue_(std::move(catalogue)),
      profiles_(std::move(profiles)),
      architectures_(std::move(architectures)) {}

// A published run did fit: without a value for recomputation, the least that fits.
void RunPricer::recompute_to_fit(Located& located) const {
  Layout& layout = located.row.job.layout;
  const ChipSpec& chip = located.cluster->chip;
  const auto used = [&] {
    return memory_use(located.row.job, *located.stack, profiles_, chip).total() / chip.memory.value;
  };
  const double before = used();
  if (before <= kSurelyTooMuch) return;
  for (const Recompute next : {Recompute::kSelective, Recompute::kFull}) {
    if (next <= layout.recompute) continue;
    layout.recompute = next;
    if (used() <= kSurelyTooMuch) break;
  }
  located.row.assumptions.push_back(fmt::format("{} recomputation: {:.1f} times the device's memory without",
                                                layout.recompute == Recompute::kFull ? "full" : "selective",
                                                before));
}

RunPricer RunPricer::with(Profiles profiles) const {
  return {catalogue_, std::move(profiles), architectures_};
}

RunPricer::Located RunPricer::locate(const PublishedRun& run) const {
  Located out;
  const PublishedRun inputs = without_results(run);
  try {
    const ChipSpec& chip = find_chip(catalogue_, inputs.gpu);
    out.stack = &profiles_.stack_on(inputs.stack, chip.name);
    out.cluster = &find_cluster(catalogue_, chip.name);
  } catch (const ConfigError& error) {
    out.row.skipped = error.what();
    return out;
  }
  out.row = job_of(inputs, *out.stack, architectures_);
  if (out.row.skipped.empty() && !inputs.recompute && out.stack->recomputes_to_fit) recompute_to_fit(out);
  return out;
}

PricedRun RunPricer::price(const PublishedRun& run) const {
  PricedRun out;
  out.id = run.id;
  const Located located = locate(run);
  out.skipped = located.row.skipped;
  out.assumptions = located.row.assumptions;
  if (!out.skipped.empty()) return out;
  const TrainingJob& job = located.row.job;
  const ChipSpec& chip = located.cluster->chip;
  try {
    out.step = step_time(job, *located.stack, profiles_, *located.cluster);
  } catch (const ConfigError& error) {
    out.skipped = error.what();
    return out;
  }
  const double total = out.step.total();
  const double width = profiles_.interval_width(located.stack, profiles_.family_of(chip.name));
  out.step_low = total * std::exp(-width);
  out.step_high = total * std::exp(width);
  out.tokens_per_s_per_gpu =
      static_cast<double>(*run.global_batch_tokens) / total / static_cast<double>(job.layout.devices());
  out.memory = memory_use(job, *located.stack, profiles_, chip);
  out.memory_gb = out.memory.total() / located.stack->memory_unit;
  return out;
}

RunPricer builtin_pricer() {
  return {builtin_catalogue(), builtin_profiles(), builtin_architectures()};
}

std::string to_json(const PricedRun& run) {
  const auto value = [&](double number) {
    return run.skipped.empty() ? nlohmann::ordered_json(number) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json out;
  out["id"] = run.id;
  out["step_time_s"] = value(run.step.total());
  out["step_time_low_s"] = value(run.step_low);
  out["step_time_high_s"] = value(run.step_high);
  out["tokens_per_s_per_gpu"] = value(run.tokens_per_s_per_gpu);
  out["memory_GB"] = value(run.memory_gb);
  out["skipped"] = run.skipped.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(run.skipped);
  return dump_json(out, -1, InvalidUtf8::kReplace);
}

std::optional<double> published_seconds(const PublishedRun& run, const RunPricer::Located& located) {
  if (const auto seconds = published_step_seconds(run)) return seconds;
  if (!run.global_batch_tokens || !run.num_gpus || has_flag(run, "inconsistent")) return std::nullopt;
  const ModelShape& shape = located.row.job.shape;
  const int64_t s = located.row.job.sequence;
  const double tokens = static_cast<double>(*run.global_batch_tokens) / static_cast<double>(*run.num_gpus);
  FlopConvention convention = FlopConvention::kModelFull;
  if (has_flag(run, "causal_half")) convention = FlopConvention::kModelCausal;
  if (has_flag(run, "hfu")) convention = FlopConvention::kSc21Hardware;
  const double flops = tokens * flops_per_token(shape, s, convention);
  if (run.tflops_per_gpu) return flops / (*run.tflops_per_gpu * 1e12);
  if (!run.mfu || has_flag(run, "mfu_wrong") || has_flag(run, "hfu")) return std::nullopt;
  const double peak = located.cluster->chip.peak_of(located.row.job.precision).value;
  return peak > 0 ? std::optional(flops / (*run.mfu * peak)) : std::nullopt;
}

}  // namespace strata::planning
