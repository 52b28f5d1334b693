// The cases of ops that a self-test runs, and that the recorder of expected results runs on the executor.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "device/device.h"
#include "ops/case_tensors.h"

namespace strata::self_test {

// Each case of the op table, in fp32 and, if it has activations, in bf16.
std::vector<device::OpCase> cases_of_ops();

// The outputs of a case on the kernels for a GPU of `multiprocessors` multiprocessors: results of equal bits then come from
// equal kernels on any GPU. Empty if the device has no kernel for it.
std::optional<std::vector<ops::Tensor>> run_as(const std::shared_ptr<device::Device>& device,
                                               const device::OpCase& one, int multiprocessors);

// An output's elements as a record has them.
std::vector<uint8_t> bytes_of(const ops::Tensor& output);

}  // namespace strata::self_test
