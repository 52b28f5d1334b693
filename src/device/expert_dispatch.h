// Kernels of ops/expert_dispatch on any device whose memory the host reads: they talk to other ranks by
// comm::Communicator::exchange_rows, along Launch::peers.
#pragma once

#include "device/bind.h"
#include "ops/expert_dispatch/expert_dispatch.h"

namespace strata::device {

BoundKernel bind_on_host(const Bind<ops::PlanDispatch>& node);
BoundKernel bind_on_host(const Bind<ops::DispatchRows>& node);
BoundKernel bind_on_host(const Bind<ops::CombineRows>& node);
BoundKernel bind_on_host(const Bind<ops::CombineSlotGrads>& node);

}  // namespace strata::device
