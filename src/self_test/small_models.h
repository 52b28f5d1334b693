// Small models that a device trains for a few steps, to compare its losses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "models/model.h"
#include "tensor/dtype.h"

namespace strata::self_test {

struct SmallModel {
  std::string name;  // "llama3-5m f32"
  models::ModelConfig model;
  DType dtype = DType::kF32;
  double tolerance = 0;  // relative, of each step's loss
};
std::vector<SmallModel> small_models();

inline constexpr int kCurveSteps = 20;
// Losses of the steps, from the same weights and tokens on every device.
std::vector<double> losses_of(const std::shared_ptr<device::Device>& device, const SmallModel& model);

}  // namespace strata::self_test
