// Scenarios of four ranks of any engine beyond single collectives; InternalError if a result is wrong.
#pragma once

#include "comm/world.h"

namespace strata::comm {

void run_scenarios(World& world);

}  // namespace strata::comm
