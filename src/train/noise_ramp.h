// training.batch_ramp = "noise_scale": a batch that doubles when the gradient's noise allows a larger one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/json.h"

namespace strata::training {

// A batch well below the noise scale averages little noise that a larger one would not average at the same
// cost in tokens (McCandlish et al., arXiv 1812.06162). The batch doubles after kSteps measured steps in a row
// whose noise scale is at least kMargin times the batch, that is, at least the doubled one. Decisions depend
// on the measurements only, which are the same on all ranks; the state goes with a checkpoint. Used by one
// thread.
class NoiseRamp {
 public:
  static constexpr double kMargin = 2;
  static constexpr int64_t kSteps = 20;

  // `sizes`: config::batch_sizes(), ascending. Begins with the smallest.
  explicit NoiseRamp(std::vector<int64_t> sizes);
  // Continues from the state of another: with its batch, or the next larger of these sizes if it is none of
  // them. ConfigError if `state` is not one.
  NoiseRamp(std::vector<int64_t> sizes, const nlohmann::json& state);

  int64_t batch() const { return batch_; }
  // After each step, with its noise scale in sequences; nullopt: not measured, which changes nothing. Returns
  // the batch of the following steps if it changes.
  std::optional<int64_t> after_step(std::optional<double> noise_scale);
  nlohmann::json state() const;

 private:
  std::vector<int64_t> sizes_;
  int64_t batch_;
  int64_t above_ = 0;  // measured steps in a row with a large enough noise scale
};

}  // namespace strata::training
