// State shared by ranks that are threads of one process: the first rank fills it in, the others read it after
// a barrier.
#pragma once

#include <memory>

#include "config/plan.h"

namespace strata::training {

struct SharedRun {
  std::shared_ptr<const config::RunPlan> plan;
};

}  // namespace strata::training
