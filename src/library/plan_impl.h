// The implementation of Plan.
#pragma once

#include "library/explanation.h"
#include "strata/train.h"

namespace strata {

struct Plan::Impl {
  Config asked, chosen;
  std::int64_t ranks = 1;
  library::Explanation explanation;
};

}  // namespace strata
