// The state of a run, as `strata runs` and `strata doctor` report it.
#pragma once

#include "diagnosis/evidence.h"
#include "observe/run_page.h"

namespace strata::diagnosis {

using observe::RunState;

RunState state_of(const Evidence& evidence);

}  // namespace strata::diagnosis
