#include <fmt/format.h>

#include <cmath>

#include "config/names.h"
#include "config/precision.h"
#include "config/resolve.h"
#include "config/validate.h"
#include "optim/definition.h"

namespace strata::config {
namespace {

// A weight is gathered in fp32 or as matmuls read it: any other type would make the layout change its rounding.
void check_gather(const RunConfig& config, Report& report) {
  const PrecisionTable& precision = config.precision;
  const bool reads_codes = precision.compute == DType::kE4M3;
  if (precision.gather == "fp8" && !reads_codes) {
    report("precision.gather", "found \"fp8\" without precision.compute = \"fp8\"; expected \"auto\"");
  } else if (precision.gather == "bf16" &&
             (computes_in_codes(config) ||
              (!precision.compute.is_word() && precision.compute != DType::kBF16))) {
    report(
        "precision.gather",
        "found \"bf16\" with precision.compute = \"{}\", whose matmuls read another type; expected \"auto\"",
        spelled(*precision.compute));
  }
}

// Weights and moments in fewer bits than fp32.
void check_storage(const RunConfig& config, Report& report) {
  const OptimizerTable& optimizer = config.optimizer;
  const bool low_weights = config.precision.weights != DType::kF32;
  const bool low_moments = optimizer.state_dtype != StateDtype::kFp32;
  for (size_t i = 0; i < optimizer.constants.size(); ++i) {
    if (!optimizer.uses(static_cast<OptimizerKind>(i))) continue;
    const optim::Definition& definition = optimizer.constants[i].definition();
    if (low_weights && !definition.low_weights)
      report(
          "precision.weights",
          "found \"bf16\" with the optimizer {}, which needs fp32; expected adamw, lion, adopt or adamw8bit",
          definition.name);
    if (low_moments && !definition.low_moments)
      report(
          "optimizer.state_dtype",
          "found \"{}\" with the optimizer {}, whose states have one type; expected adamw, lion or adopt, or "
          "\"fp32\"",
          optimizer.state_dtype == StateDtype::kFp8 ? "fp8" : "bf16", definition.name);
  }
  if (config.device.kind.is_word() || config.device.kind != device::Kind::kCuda) return;
  const char* const kOnProcessors =
      "found another type than fp32 with device.kind = \"cuda\": not yet; expected "
      "\"fp32\", or device.kind = \"cpu\"";
  if (low_weights) report("precision.weights", "{}", kOnProcessors);
  if (low_moments) report("optimizer.state_dtype", "{}", kOnProcessors);
}

void check_loss_scale(double scale, bool is_fp16, Report& report) {
  if (!is_fp16) {
    report(
        "precision.loss_scale",
        "found {} without precision.compute = \"fp16\", the only format whose loss is scaled; leave it out",
        scale);
    return;
  }
  int exponent = 0;
  if (std::frexp(scale, &exponent) == 0.5) return;
  const double below = std::ldexp(0.5, exponent);
  report("precision.loss_scale", "found {}, expected a power of two, such as {} or {}", scale, below,
         2 * below);
}

void check_dispatch(const RunConfig& config, Report& report) {
  const PrecisionTable& precision = config.precision;
  const std::string compute = precision.compute.is_word() ? "auto" : std::string(spelled(*precision.compute));
  if (precision.dispatch == "fp8" && precision.compute != DType::kE4M3) {
    report(
        "precision.dispatch",
        "found \"fp8\" with precision.compute = \"{}\", expected \"auto\": rows travel in codes only where "
        "experts multiply these",
        compute);
  } else if (precision.dispatch == "fp8" && precision.recipe == "row_hp_wgrad") {
    report(
        "precision.dispatch",
        "found \"fp8\" with precision.recipe = \"row_hp_wgrad\", whose weight gradients read rows in bf16; "
        "expected \"bf16\" or \"auto\"");
  } else if (precision.dispatch == "bf16" && !precision.compute.is_word() &&
             activation_dtype(config) != DType::kBF16) {
    report("precision.dispatch",
           "found \"bf16\" with precision.compute = \"{}\", expected \"auto\": rows travel in the residual "
           "stream's type",
           compute);
  }
}

// Keys that change a part of a recipe need one that has it.
void check_controls(const RunConfig& config, Report& report) {
  const PrecisionTable& precision = config.precision;
  const quantize::Recipe* const recipe =
      computes_in_codes(config) ? quantize::find_recipe(recipe_name(config)) : nullptr;
  const std::string found = recipe == nullptr ? "without precision.compute = \"fp8\" or \"fp4\""
                                              : fmt::format("with precision.recipe = \"{}\"", recipe->name);
  if (!precision.hadamard && (recipe == nullptr || !recipe->transforms_weight_gradient))
    report("precision.hadamard",
           "found false {}, expected the recipe nvfp4, which has the transform; leave it out", found);
  if (precision.gradient_rounding != "auto" &&
      (recipe == nullptr || !recipe->rounds_gradients_stochastically))
    report("precision.gradient_rounding",
           "found \"{}\" {}, expected the recipe nvfp4; others round to nearest, leave it out",
           precision.gradient_rounding, found);
  const bool is_modelled =
      recipe != nullptr && recipe->input.along_rows.scale_type() == quantize::ScaleType::kF32;
  if (precision.accumulation != quantize::PartialSums::kF32 && !is_modelled)
    report("precision.accumulation",
           "found \"{}\" {}, expected a recipe in fp8 other than mxfp8, as Hopper multiplies; leave it out",
           spelled(precision.accumulation), found);
}

}  // namespace

void check_precision(const RunConfig& config, Report& report) {
  const char* const kNotYet = "not yet in this version; leave it out";
  const PrecisionTable& precision = config.precision;
  if (!precision.residual.is_word() && !precision.compute.is_word() &&
      precision.residual != activation_dtype(config)) {
    report("precision.residual", "found another type than precision.compute: {}", kNotYet);
  }
  if (precision.recipe != "auto") {
    const bool is_of_4_bits = precision.recipe == "nvfp4";
    const DType needed = is_of_4_bits ? DType::kE2M1 : DType::kE4M3;
    if (precision.compute != needed)
      report("precision.recipe", "found \"{}\" with precision.compute = {}, expected \"{}\"",
             precision.recipe,
             precision.compute.is_word() ? "\"auto\"" : fmt::format("\"{}\"", spelled(*precision.compute)),
             spelled(needed));
  }
  check_gather(config, report);
  check_dispatch(config, report);
  check_controls(config, report);
  if (computes_in_codes(config) && config.device.kind == device::Kind::kCuda)
    report("precision.compute",
           "found {} with device.kind = \"cuda\": not yet in this version; take \"bf16\"",
           spelled(*precision.compute));
  const bool is_fp16 = precision.compute == DType::kF16;
  if (is_fp16 && config.device.kind == device::Kind::kCuda) {
    report("precision.compute",
           "found \"fp16\" with device.kind = \"cuda\": not yet in this version; take \"bf16\", or "
           "the device \"cpu\"");
  }
  if (!precision.loss_scale.is_word()) check_loss_scale(*precision.loss_scale, is_fp16, report);
  check_storage(config, report);
}

}  // namespace strata::config
