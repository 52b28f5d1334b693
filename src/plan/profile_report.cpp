#include <fmt/format.h>

#include "plan/fit_profiles.h"

namespace strata::planning {
namespace {

std::string row_of(const Accuracy& accuracy) {
  return fmt::format("| {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} |\n", accuracy.group, accuracy.rows,
                     100 * accuracy.mean, 100 * accuracy.median, 100 * accuracy.p90, 100 * accuracy.worst);
}

std::string table_of(const std::string& first, const std::vector<Accuracy>& rows) {
  if (rows.empty()) return "";
  std::string out = fmt::format("\n| {} | rows | mean % | median % | p90 % | worst % |\n", first);
  out += "| --- | ---: | ---: | ---: | ---: | ---: |\n";
  for (const Accuracy& row : rows) out += row_of(row);
  return out;
}

}  // namespace

std::string to_text(const ProfileReport& report) {
  std::string out =
      fmt::format("Step time: {} constants fitted on {} rows, tested on the other {} complete rows.\n",
                  report.constants, report.fitted_rows, report.held_out_rows);
  std::vector<Accuracy> totals = {report.held_out, report.cross_validated, report.baseline, report.memory};
  totals[0].group = "rows not fitted";
  totals[1].group = "five-fold cross-validation";
  totals[2].group = "baseline: median MFU of the stack";
  totals[3].group = "memory of the fullest device";
  std::erase_if(totals, [](const Accuracy& accuracy) { return accuracy.rows == 0; });
  out += table_of("error of", totals);
  out +=
      fmt::format("\n90 % intervals contain {:.0f} % of the rows not fitted; median half-width {:.0f} %.\n",
                  100 * report.inside, 100 * report.median_width);
  if (report.other_quarters.rows > 0)
    out += fmt::format("Mean error after {} other choices of the quarter: {:.1f} %, at most {:.1f} %.\n",
                       report.other_quarters.rows, 100 * report.other_quarters.mean,
                       100 * report.other_quarters.worst);
  out += table_of("stack", report.stacks);
  out += table_of("group", report.groups);
  out += table_of("stack left out of the fit", report.left_out);
  return out;
}

std::string skipped_text(const ProfileReport& report) {
  if (report.skipped.empty()) return "";
  std::string out = "\n| row without a comparison | reason |\n| --- | --- |\n";
  for (const Unpriced& row : report.skipped) out += fmt::format("| {} | {} |\n", row.run->id, row.reason);
  return out;
}

namespace {

// Of the predicted step against the bf16 peak, in each convention.
std::string mfu_text(const RunPricer& pricer, const PublishedRun& run, double seconds) {
  const RunPricer::Located located = pricer.locate(run);
  const TrainingJob& job = located.row.job;
  const double tokens = job.batch_tokens() / static_cast<double>(job.layout.devices()) / seconds;
  const double peak = located.cluster->chip.peak_of(Precision::kBf16).value;
  std::string out;
  for (const FlopConvention convention : flop_conventions()) {
    // Formulas for an MLP of two matrices of width 4h.
    const bool gpt = convention == FlopConvention::kSc21Hardware || convention == FlopConvention::kSc21Model;
    if (gpt && (job.shape.gated || job.shape.ffn != 4 * job.shape.hidden)) continue;
    const double share = peak > 0 ? tokens * flops_per_token(job.shape, job.sequence, convention) / peak : 0;
    out += fmt::format("{}{:.3f} ({})", out.empty() ? "" : ", ", share, to_string(convention));
  }
  return out;
}

}  // namespace

std::string predictions_text(const RunPricer& pricer, std::span<const PublishedRun> runs) {
  std::string out;
  for (const PublishedRun& run : runs) {
    const PricedRun priced = pricer.price(run);
    if (!priced.skipped.empty()) {
      out += fmt::format("{}: skipped, {}\n", run.id, priced.skipped);
      continue;
    }
    const StepTime& step = priced.step;
    out += fmt::format(
        "{}: {:.3g} s ({:.3g} to {:.3g}): compute {:.3g}, bubble {:.3g}, exposed {:.3g} (tensor {:.3g}, "
        "context {:.3g}, expert {:.3g}, pipeline {:.3g}, data {:.3g}), optimizer {:.3g}, fixed {:.3g}; "
        "memory {:.1f} GB\n",
        run.id, step.total(), priced.step_low, priced.step_high, step.compute(), step.bubble, step.exposed(),
        step.tensor, step.context, step.expert, step.pipeline, step.data, step.optimizer, step.fixed,
        priced.memory_gb);
    out += fmt::format("  MFU: {}\n", mfu_text(pricer, run, step.total()));
    for (const std::string& assumption : priced.assumptions)
      out += fmt::format("  assumed: {}\n", assumption);
  }
  return out;
}

}  // namespace strata::planning
