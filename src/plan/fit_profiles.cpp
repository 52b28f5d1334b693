#include "plan/fit_profiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/hash.h"
#include "plan/minimize.h"

namespace strata::planning {
namespace {

constexpr double kNoise = 0.08;   // of log(step time), where the loss turns from squares to absolute values
constexpr size_t kLeastRows = 8;  // of a stack with own constants
constexpr double kFitShare = 0.25;

// A constant in the fit: its place in Profiles, and the prior of its logarithm.
struct Constant {
  double* value;
  double prior;
  double deviation;
};

bool fits(const std::string& name, const std::map<std::string, int64_t>& rows) {
  const auto found = rows.find(name);
  return found != rows.end() && found->second > 0;
}

// The stack whose constants a row uses.
const std::string& owner_of(const StackProfile& stack) {
  return stack.like.empty() ? stack.name : stack.like;
}

struct Counts {
  std::map<std::string, int64_t> families, stacks;
};
Counts count_rows(const Profiles& profiles, std::span<const FitRow* const> rows) {
  Counts out;
  for (const FitRow* row : rows) {
    ++out.families[row->family];
    ++out.stacks[owner_of(profiles.stack(row->profile))];
  }
  return out;
}

std::vector<Constant> constants_of(Profiles& profiles, const Counts& counts) {
  std::vector<Constant> out = {{&profiles.elementwise, 0.8, 0.2}};
  for (ChipFamily& family : profiles.families) {
    if (fits(family.name, counts.families)) out.push_back({&family.gemm.value, 1.0, 0.15});
  }
  for (StackProfile& stack : profiles.stacks) {
    if (!stack.like.empty() || !fits(stack.name, counts.stacks)) continue;
    out.push_back({&stack.efficiency.value, 1.0, 0.12});
    out.push_back({&stack.fixed.value, 0.02, 1.0});
  }
  return out;
}

// Values of stacks that share those of another one.
void share(Profiles& profiles) {
  for (StackProfile& stack : profiles.stacks) {
    if (stack.like.empty()) continue;
    const StackProfile& owner = profiles.stack(stack.like);
    stack.efficiency = owner.efficiency;
    stack.fixed = owner.fixed;
  }
}

double predicted(const FitRow& row, const Profiles& profiles) {
  return step_time(row.job, profiles.stack(row.profile), profiles, *row.cluster).total();
}

// Quadratic below one, then linear (pseudo-Huber), of the error in units of the noise.
double robust(double error) {
  return 2 * (std::sqrt(1 + error * error) - 1);
}

double value_at(std::span<const double> x, std::span<const Constant> constants, Profiles& profiles,
                std::span<const FitRow* const> rows) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    *constants[i].value = std::exp(x[i]);
    const double away = (x[i] - std::log(constants[i].prior)) / constants[i].deviation;
    sum += away * away;
  }
  share(profiles);
  for (const FitRow* row : rows) sum += robust(std::log(predicted(*row, profiles) / row->seconds) / kNoise);
  return sum;
}

double error_quantile(std::vector<double> values, double share_below) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = share_below * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

double error_of(const FitRow& row, const Profiles& profiles) {
  return std::abs(predicted(row, profiles) / row.seconds - 1);
}
double log_error_of(const FitRow& row, const Profiles& profiles) {
  return std::abs(std::log(predicted(row, profiles) / row.seconds));
}

std::vector<const FitRow*> all_rows(const FitTable& table) {
  std::vector<const FitRow*> out;
  out.reserve(table.rows.size());
  for (const FitRow& row : table.rows) out.push_back(&row);
  return out;
}

// The first row of each chip, then the second of each, and so on.
std::vector<const FitRow*> by_turns(const std::vector<const FitRow*>& rows) {
  std::map<std::string, size_t> seen;
  std::vector<std::pair<size_t, const FitRow*>> turns;
  for (const FitRow* row : rows) turns.emplace_back(seen[row->cluster->chip.name]++, row);
  std::stable_sort(turns.begin(), turns.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const FitRow*> out;
  for (const auto& turn : turns) out.push_back(turn.second);
  return out;
}

std::vector<const FitRow*> rows_except(std::span<const FitRow* const> all,
                                       std::span<const FitRow* const> without) {
  std::vector<const FitRow*> out;
  for (const FitRow* row : all) {
    if (std::find(without.begin(), without.end(), row) == without.end()) out.push_back(row);
  }
  return out;
}

// The groups of the report that a row belongs to.
std::vector<std::string> groups_of(const FitRow& row) {
  std::vector<std::string> out = {row.job.shape.has_experts() ? "experts (MoE)" : "dense"};
  if (row.job.precision == Precision::kFp8) out.emplace_back("fp8");
  if (row.job.precision == Precision::kFp4) out.emplace_back("fp4");
  if (row.cluster->chip.vendor == "AMD") out.emplace_back("AMD");
  if (row.cluster->chip.kind == "tpu") out.emplace_back("TPU");
  out.push_back("chip " + row.cluster->chip.name);
  return out;
}

Accuracy accuracy_on(std::string group, std::span<const FitRow* const> rows, const Profiles& profiles) {
  std::vector<double> errors;
  errors.reserve(rows.size());
  for (const FitRow* row : rows) errors.push_back(error_of(*row, profiles));
  return accuracy_of(std::move(group), std::move(errors));
}

// Of a prediction by the median MFU of the row's stack.
Accuracy baseline_on(std::span<const FitRow* const> rows) {
  const auto ideal = [](const FitRow& row) {
    const double peak = row.cluster->chip.peak_of(Precision::kBf16).value;
    const double flops = flops_per_token(row.job.shape, row.job.sequence, FlopConvention::kModelFull);
    return row.job.batch_tokens() * flops / static_cast<double>(row.job.layout.devices()) / peak;
  };
  std::map<std::string, std::vector<double>> fractions;
  for (const FitRow* row : rows) fractions[row->stack].push_back(ideal(*row) / row->seconds);
  std::vector<double> errors;
  for (const FitRow* row : rows)
    errors.push_back(std::abs(ideal(*row) / error_quantile(fractions[row->stack], 0.5) / row->seconds - 1));
  return accuracy_of("baseline", std::move(errors));
}

std::vector<Accuracy> grouped(std::span<const FitRow* const> rows, const Profiles& profiles, bool stacks) {
  std::map<std::string, std::vector<double>> errors;
  for (const FitRow* row : rows) {
    if (stacks) {
      errors[row->stack].push_back(error_of(*row, profiles));
      continue;
    }
    for (const std::string& group : groups_of(*row)) errors[group].push_back(error_of(*row, profiles));
  }
  std::vector<Accuracy> out;
  for (const auto& [group, values] : errors) out.push_back(accuracy_of(group, values));
  return out;
}

void add_memory(ProfileReport& report, const RunPricer& pricer, std::span<const PublishedRun> runs) {
  std::vector<double> errors;
  for (const PublishedRun& run : runs) {
    if (!run.memory_gb) continue;
    const PricedRun priced = pricer.price(run);
    if (priced.skipped.empty()) errors.push_back(std::abs(priced.memory_gb / *run.memory_gb - 1));
  }
  report.memory = accuracy_of("memory", std::move(errors));
}

// Everything except the fits without a part of the rows.
ProfileReport report_of(const RunPricer& pricer, const FitTable& table, std::span<const FitRow* const> fitted,
                        std::span<const PublishedRun> runs) {
  const Profiles& profiles = pricer.profiles();
  const std::vector<const FitRow*> all = all_rows(table);
  const std::vector<const FitRow*> rest = rows_except(all, fitted);
  ProfileReport out;
  out.fitted_rows = static_cast<int64_t>(fitted.size());
  out.held_out_rows = static_cast<int64_t>(rest.size());
  out.constants = fitted_constants(profiles);
  out.held_out = accuracy_on("all", rest, profiles);
  out.baseline = baseline_on(rest);
  out.stacks = grouped(rest, profiles, true);
  out.groups = grouped(rest, profiles, false);
  add_memory(out, pricer, runs);
  int64_t inside = 0;
  std::vector<double> widths;
  for (const FitRow* row : rest) {
    const PricedRun priced = pricer.price(*row->run);
    if (row->seconds >= priced.step_low && row->seconds <= priced.step_high) ++inside;
    widths.push_back(priced.step_high / priced.step.total() - 1);
  }
  out.inside = rest.empty() ? 0 : static_cast<double>(inside) / static_cast<double>(rest.size());
  out.median_width = error_quantile(widths, 0.5);
  out.skipped = table.skipped;
  return out;
}

// Residuals of rows that a fit did not use.
struct Residuals {
  std::vector<double> errors, logs;
};
void add_residuals(Residuals& out, std::span<const FitRow* const> rows, const Profiles& profiles) {
  for (const FitRow* row : rows) {
    out.errors.push_back(error_of(*row, profiles));
    out.logs.push_back(log_error_of(*row, profiles));
  }
}

// Half-widths by profile: the 90 % quantile of its held-out rows, drawn to that of all rows as if by 8 more.
void add_intervals(Profiles& profiles, std::span<const FitRow* const> rest) {
  std::map<std::string, std::vector<double>> logs;
  std::vector<double> all;
  for (const FitRow* row : rest) {
    logs[row->profile].push_back(log_error_of(*row, profiles));
    all.push_back(log_error_of(*row, profiles));
  }
  const double common = error_quantile(all, 0.9);
  profiles.intervals.clear();
  for (const auto& [stack, values] : logs) {
    const auto n = static_cast<double>(values.size());
    const double width = (n * error_quantile(values, 0.9) + 8 * common) / (n + 8);
    profiles.intervals.push_back(
        {.stack = stack, .step = width, .rows = static_cast<int64_t>(values.size())});
  }
}

// The committed fit's rows without those for which `drop` holds.
template <typename Drop>
Residuals without(const Profiles& assumed, std::span<const FitRow* const> all,
                  std::span<const FitRow* const> fitted, Drop drop) {
  std::vector<const FitRow*> used, tested;
  for (const FitRow* row : fitted) {
    if (!drop(*row)) used.push_back(row);
  }
  for (const FitRow* row : all) {
    if (drop(*row)) tested.push_back(row);
  }
  Residuals out;
  add_residuals(out, tested, fit_profiles(assumed, used));
  return out;
}

// The mean error of each of `times` other choices of rows, by hashes with another seed.
std::vector<double> errors_of_other_choices(const Profiles& assumed, const FitTable& table, uint64_t times) {
  std::vector<double> out;
  for (uint64_t seed = 1; seed <= times; ++seed) {
    FitTable other = table;
    std::stable_sort(other.rows.begin(), other.rows.end(), [&](const FitRow& a, const FitRow& b) {
      return hash64(&a.hash, sizeof a.hash, seed) < hash64(&b.hash, sizeof b.hash, seed);
    });
    const std::vector<const FitRow*> used = rows_to_fit(other);
    const Profiles profiles = fit_profiles(assumed, used);
    out.push_back(accuracy_on("", rows_except(all_rows(other), used), profiles).mean);
  }
  return out;
}

void append(std::vector<double>& to, const std::vector<double>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

uint64_t input_hash(const PublishedRun& run) {
  const auto cell = [](const std::optional<int64_t>& value) {
    return value ? fmt::format("{}", *value) : std::string();
  };
  std::string out = run.stack + "|" + run.gpu + "|" + run.precision_text + "|" + run.recompute_text;
  if (run.fsdp) out += fmt::format("|zero{} {}", run.fsdp->stage, run.fsdp->degree.value_or(0));
  for (const auto& value : {run.layers, run.hidden, run.heads, run.kv_heads, run.ffn, run.vocab, run.seq_len,
                            run.global_batch_tokens, run.num_gpus, run.tp, run.pp, run.vpp, run.dp, run.ep,
                            run.cp, run.micro_batch})
    out += "|" + cell(value);
  return hash64(out);
}

FitTable fit_table(const RunPricer& pricer, std::span<const PublishedRun> runs) {
  FitTable out;
  for (const PublishedRun& run : runs) {
    const RunPricer::Located located = pricer.locate(run);
    if (!located.row.skipped.empty()) {
      out.skipped.push_back({&run, located.row.skipped});
      continue;
    }
    const auto seconds = published_seconds(run, located);
    if (!seconds) {
      out.skipped.push_back({&run, "no step time, and none follows from its results"});
      continue;
    }
    const ChipFamily* family = pricer.profiles().family_of(located.cluster->chip.name);
    out.rows.push_back({.run = &run,
                        .job = located.row.job,
                        .cluster = located.cluster,
                        .stack = run.stack,
                        .profile = located.stack->name,
                        .family = family ? family->name : "",
                        .hash = input_hash(run),
                        .seconds = *seconds});
  }
  std::stable_sort(out.rows.begin(), out.rows.end(),
                   [](const FitRow& a, const FitRow& b) { return a.hash < b.hash; });
  return out;
}

std::vector<const FitRow*> rows_to_fit(const FitTable& table) {
  std::map<std::string, std::vector<const FitRow*>> by_stack;
  for (const FitRow* row : all_rows(table)) by_stack[row->stack].push_back(row);
  std::vector<const FitRow*> out;
  for (const auto& [stack, rows] : by_stack) {
    if (rows.size() < kLeastRows) continue;
    const auto count = static_cast<size_t>(kFitShare * static_cast<double>(rows.size()));
    const std::vector<const FitRow*> turns = by_turns(rows);
    out.insert(out.end(), turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return out;
}

Profiles fit_profiles(const Profiles& assumed, std::span<const FitRow* const> rows) {
  Profiles out = assumed;
  const Counts counts = count_rows(out, rows);
  // Constants without rows have their priors.
  out.elementwise = 0.8;
  for (ChipFamily& family : out.families) family.gemm = {.value = 1, .rows = 0};
  for (StackProfile& stack : out.stacks) {
    stack.efficiency = {.value = 1, .rows = 0};
    stack.fixed = {.value = 0.02, .rows = 0};
  }
  const std::vector<Constant> constants = constants_of(out, counts);
  std::vector<double> start;
  start.reserve(constants.size());
  for (const Constant& constant : constants) start.push_back(std::log(constant.prior));
  const auto objective = [&](std::span<const double> x, std::span<double> gradient) {
    std::vector<double> at(x.begin(), x.end());
    constexpr double kStep = 1e-5;
    for (size_t i = 0; i < at.size(); ++i) {
      at[i] = x[i] + kStep;
      const double above = value_at(at, constants, out, rows);
      at[i] = x[i] - kStep;
      gradient[i] = (above - value_at(at, constants, out, rows)) / (2 * kStep);
      at[i] = x[i];
    }
    return value_at(at, constants, out, rows);
  };
  const Minimum minimum = minimize(
      objective, start, {.max_iterations = 100, .gradient_tolerance = 1e-4, .value_tolerance = 1e-7});
  value_at(minimum.x, constants, out, rows);
  for (ChipFamily& family : out.families) {
    if (fits(family.name, counts.families)) family.gemm.rows = counts.families.at(family.name);
  }
  for (StackProfile& stack : out.stacks) {
    if (!fits(owner_of(stack), counts.stacks)) continue;
    stack.efficiency.rows = stack.fixed.rows = counts.stacks.at(owner_of(stack));
  }
  return out;
}

int64_t fitted_constants(const Profiles& profiles) {
  int64_t out = 1;
  for (const ChipFamily& family : profiles.families) out += family.gemm.rows > 0 ? 1 : 0;
  for (const StackProfile& stack : profiles.stacks)
    out += stack.like.empty() && stack.efficiency.rows > 0 ? 2 : 0;
  return out;
}

Accuracy accuracy_of(std::string group, std::vector<double> errors) {
  Accuracy out{.group = std::move(group), .rows = static_cast<int64_t>(errors.size())};
  if (errors.empty()) return out;
  for (const double error : errors) out.mean += error / static_cast<double>(errors.size());
  out.median = error_quantile(errors, 0.5);
  out.p90 = error_quantile(errors, 0.9);
  out.worst = *std::max_element(errors.begin(), errors.end());
  return out;
}

ProfileReport validate(const RunPricer& pricer, std::span<const PublishedRun> runs) {
  const FitTable table = fit_table(pricer, runs);
  const std::vector<uint64_t>& used = pricer.profiles().fit_rows;
  std::vector<const FitRow*> fitted;
  for (const FitRow& row : table.rows) {
    if (std::find(used.begin(), used.end(), row.hash) != used.end()) fitted.push_back(&row);
  }
  return report_of(pricer, table, fitted, runs);
}

FitResult fit_and_validate(const RunPricer& pricer, std::span<const PublishedRun> runs, std::string date) {
  const FitTable table = fit_table(pricer, runs);
  const std::vector<const FitRow*> all = all_rows(table);
  const std::vector<const FitRow*> fitted = rows_to_fit(table);
  const Profiles& assumed = pricer.profiles();
  Profiles profiles = fit_profiles(assumed, fitted);
  profiles.fitted_on = fmt::format("{} of {} rows, {}", fitted.size(), all.size(), date);
  profiles.fit_rows.clear();
  for (const FitRow* row : fitted) profiles.fit_rows.push_back(row->hash);
  std::sort(profiles.fit_rows.begin(), profiles.fit_rows.end());
  add_intervals(profiles, rows_except(all, fitted));

  std::vector<Accuracy> left_out;
  Residuals stacks, families;
  for (const StackProfile& stack : assumed.stacks) {
    if (!stack.like.empty()) continue;
    Residuals one = without(assumed, all, fitted, [&](const FitRow& row) {
      return owner_of(assumed.stack(row.profile)) == stack.name;
    });
    if (one.errors.empty()) continue;
    append(stacks.logs, one.logs);
    left_out.push_back(accuracy_of(stack.name, std::move(one.errors)));
  }
  for (const ChipFamily& family : assumed.families) {
    append(families.logs,
           without(assumed, all, fitted, [&](const FitRow& row) { return row.family == family.name; }).logs);
  }
  profiles.unknown_stack = error_quantile(stacks.logs, 0.9);
  profiles.unknown_chip = error_quantile(families.logs, 0.9);

  Residuals folds;
  constexpr size_t kFolds = 5;
  for (size_t fold = 0; fold < kFolds; ++fold) {
    std::vector<const FitRow*> used, tested;
    for (size_t i = 0; i < all.size(); ++i) (i % kFolds == fold ? tested : used).push_back(all[i]);
    add_residuals(folds, tested, fit_profiles(assumed, used));
  }
  FitResult out;
  const RunPricer priced = pricer.with(profiles);
  out.report = validate(priced, runs);
  out.report.other_quarters = accuracy_of("other quarters", errors_of_other_choices(assumed, table, 20));
  out.report.cross_validated = accuracy_of("five folds", std::move(folds.errors));
  out.report.left_out = std::move(left_out);
  out.profiles = std::move(profiles);
  return out;
}

}  // namespace strata::planning
