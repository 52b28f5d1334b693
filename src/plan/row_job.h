// A row of published runs as a job that formulas can price.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/layout.h"
#include "plan/model_shape.h"
#include "plan/published_runs.h"
#include "plan/stack_profile.h"

namespace strata::planning {

// A published architecture, by the names that its rows use.
struct Architecture {
  std::string name;
  std::vector<std::string> match;  // a row's model begins with one of these
  ModelShape shape;
  double parameters = 0;         // as published
  double active_parameters = 0;  // 0: a dense model, or not published
};
std::vector<Architecture> builtin_architectures();
// Null if no architecture matches.
const Architecture* find_architecture(const std::vector<Architecture>& all, std::string_view model);

// What formulas need of a run.
struct TrainingJob {
  ModelShape shape;
  Layout layout;
  int64_t sequence = 0;  // tokens
  Precision precision = Precision::kBf16;
  double batch_tokens() const;  // of a step
};

struct RowJob {
  TrainingJob job;
  std::vector<std::string> assumptions;  // values that the row does not publish
  std::string skipped;                   // why it cannot be priced; empty: it can
};
// Columns without a value (priced_columns()), invalid cells and values that contradict each other make
// `skipped`. Experts and latent attention are those of the architecture if the row's model is known by name.
// Otherwise the parameter counts determine whether the MLP is gated, whether the head is tied, and for rows
// with experts their number and how many process a token (all layers with experts of width `ffn`). Reads no
// result of the row.
RowJob job_of(const PublishedRun& run, const StackProfile& stack, const std::vector<Architecture>& known);

}  // namespace strata::planning
