// Checks a device against the reference kernels and the processor, on the machine at hand: `strata doctor --self-test`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "device/device.h"

namespace strata::library {

struct SelfTest {
  std::string device;
  int64_t cases = 0;    // of ops: each dtype and each way to place outputs is one
  int64_t refused = 0;  // without a kernel
  int64_t runs = 0;     // of cases, with different numbers
  // The mean of the losses of a few steps of a small model.
  struct Training {
    std::string model;
    double processor = 0, device = 0, tolerance = 0;  // relative
  };
  std::vector<Training> training;
  std::vector<std::string> failures;  // sentences
  double seconds = 0;

  bool passed() const { return failures.empty() && runs > 0 && !training.empty(); }
};

// Every case of every op at its tolerance, with outputs and scratch filled with NaN first and with zeros, which must make no
// difference; then small models that train on both. Cases are repeated with other numbers until `minutes` are over. `report`
// gets a line of progress now and then. An error of the device is a failure too; after it nothing else is run.
SelfTest test_device(const std::shared_ptr<device::Device>& device, double minutes,
                     FunctionRef<void(const std::string&)> report);

}  // namespace strata::library
