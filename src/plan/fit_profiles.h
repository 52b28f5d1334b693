// Fits the constants of stack profiles on a part of the published runs, and measures their error on the rest.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/price_runs.h"

namespace strata::planning {

// A row with all columns that pricing needs, and a published step time.
struct FitRow {
  const PublishedRun* run = nullptr;
  TrainingJob job;
  const ClusterSpec* cluster = nullptr;
  std::string stack;    // of the row
  std::string profile;  // of the stack on this chip
  std::string family;   // of its chip; empty: none
  uint64_t hash = 0;    // input_hash()
  double seconds = 0;   // published
};

// Of the columns that pricing reads.
uint64_t input_hash(const PublishedRun& run);

struct Unpriced {
  const PublishedRun* run = nullptr;
  std::string reason;
};

// The rows point into `runs` and `pricer`, which must outlive them.
struct FitTable {
  std::vector<FitRow> rows;
  std::vector<Unpriced> skipped;
};
FitTable fit_table(const RunPricer& pricer, std::span<const PublishedRun> runs);

// Rows for the fit: of each stack with 8 or more rows a quarter, rounded down, in the order of the hash, its
// chips in turn. Stacks with fewer share the constants of the stack that their profile names.
std::vector<const FitRow*> rows_to_fit(const FitTable& table);

// Fits by maximum a posteriori: errors of log(step time) with a robust loss at 8 %, and normal priors of
// the logarithms, which keep constants without rows at their assumptions:
//   gemm of a family 1 ± 15 %, efficiency of a stack 1 ± 12 %, elementwise 0.8 ± 20 %,
//   fixed seconds 0.02 times or divided by e.
// Also sets the numbers of rows; intervals are left unchanged.
Profiles fit_profiles(const Profiles& assumed, std::span<const FitRow* const> rows);
// Constants that the fit of these rows determines.
int64_t fitted_constants(const Profiles& profiles);

// |predicted / published - 1| over rows.
struct Accuracy {
  std::string group;
  int64_t rows = 0;
  double mean = 0;
  double median = 0;
  double p90 = 0;
  double worst = 0;
};
Accuracy accuracy_of(std::string group, std::vector<double> errors);

struct ProfileReport {
  int64_t fitted_rows = 0, held_out_rows = 0, constants = 0;
  Accuracy held_out;
  Accuracy cross_validated;        // five folds of all rows, in the order of the hash
  Accuracy other_quarters;         // mean errors of the rows left by 20 other choices of the fit's rows
  Accuracy baseline;               // of each stack's median MFU, over the rows not fitted
  std::vector<Accuracy> stacks;    // rows not fitted
  std::vector<Accuracy> groups;    // dense, MoE, fp8, AMD, TPU, chips
  std::vector<Accuracy> left_out;  // each stack predicted by constants fitted without it
  Accuracy memory;                 // of the rows that publish it
  double inside = 0;               // share of the rows not fitted that their interval contains
  double median_width = 0;         // half-width of the interval over the prediction, upwards
  std::vector<Unpriced> skipped;
};

struct FitResult {
  Profiles profiles;
  ProfileReport report;
};
// The committed fit: constants, then intervals from the residuals of rows that were not fitted.
FitResult fit_and_validate(const RunPricer& pricer, std::span<const PublishedRun> runs, std::string date);
// The error of the pricer's profiles on the rows with results that their fit did not use.
ProfileReport validate(const RunPricer& pricer, std::span<const PublishedRun> runs);

// Markdown tables of the errors, then the rows without a comparison, each with the reason.
std::string to_text(const ProfileReport& report);
std::string skipped_text(const ProfileReport& report);

// For each row the step with its interval and parts, the memory, the MFU in each convention and the
// assumptions, or why it is not priced.
std::string predictions_text(const RunPricer& pricer, std::span<const PublishedRun> runs);

}  // namespace strata::planning
