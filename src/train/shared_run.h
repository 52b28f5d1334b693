// What ranks that are threads of one process make once: the first of them fills it in, and a barrier later
// the others read it.
#pragma once

#include <memory>

#include "config/plan.h"

namespace strata::train {

struct SharedRun {
  std::shared_ptr<const config::RunPlan> plan;
};

}  // namespace strata::train
