// Curves of guides and reports, predicted: the second half of `strata plan --check-claims`.
//
// data/planning/curves.toml has the published points and what each is predicted by,
// data/planning/curve_runs.csv the runs. Every value follows from the catalogue, the profiles of stacks and
// the formulas of this module; no formula reads a published value of a curve. `predict`, in the file:
//
//   speed             tokens/s of a device, over those of the run `to` (step_model.h)
//   mfu               model FLOPs with full attention over the peak (model_shape.h)
//   expert-share      share of the step in exchanges with experts
//   gather-tokens     tokens of a device at which gathers and reductions of ZeRO-3 take as long as computing
//                     (guide 3: N bytes 3 F / (6 N_act g B)), by bisection over micro-batches of the run
//   fsdp-over-tensor  speed of the run with x tokens of a device over that of the run `to`
//   flat-over-levels  all-reduce of 1 GB in one ring over the NICs against all levels (exchange_seconds())
//   bubble            share of a step of 8 equal stages in which ranks wait (parallel/simulate.h)
//   schedule          speed of a schedule over that of the first one, simulated with the run's F, I and W
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"

namespace strata::planning {

// The shape of the published points, which predictions have to reproduce.
enum class Expected {
  kRises,    // every value is above the one before
  kFalls,    // every value is below the one before
  kLevel,    // all values are within 10 % of the first
  kCrosses,  // each value is within a factor of 2 of the published one; they rise with x
  kOrder,    // the values have the order of the published ones
};
std::string_view to_string(Expected expected);

struct CurvePoint {
  double x = 0;
  std::string name;  // of a schedule, instead of x
  std::optional<double> published;
  double predicted = 0;
  std::optional<double> error() const;  // predicted / published - 1
};

struct GuideCurve {
  std::string id;
  std::string source;
  std::string what;  // the quantity
  std::string axis;  // of x
  std::string note;  // assumptions; may be empty
  Expected expected = Expected::kRises;
  std::vector<CurvePoint> points;
  bool direction_holds = false;
};

// Whether the predictions have the expected shape.
bool direction_holds(const GuideCurve& curve);

// Every curve of the built-in file, predicted. ConfigError with file and line for a file with other keys.
std::vector<GuideCurve> guide_curves();

// A table of each curve, then how many directions hold.
std::string to_text(std::span<const GuideCurve> curves);
// [{"id", "source", "what", "axis", "expected", "note", "points": [{"x", "published", "predicted", "error"}],
// "direction_holds"}]: x is a number or the name of a schedule, published and error may be null.
nlohmann::ordered_json json_of(std::span<const GuideCurve> curves);

}  // namespace strata::planning
