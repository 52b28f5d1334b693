// Experts that ranks share, on a device whose memory the host reaches: what ops/expert_parallel defines,
// with the device's own kernels for the body.
#pragma once

#include <span>

#include "device/bindings.h"

namespace strata::device {

// Of ops::ExpertParallel and its gradients. `table`: the device's rows, for the nodes of the body.
BoundKernel bind_expert_rounds(const BindRequest& request, std::span<const Binding> table);

}  // namespace strata::device
