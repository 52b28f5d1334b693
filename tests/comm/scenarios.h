// What four ranks of any engine do beside single collectives; InternalError where something comes out wrong.
#pragma once

#include "comm/world.h"

namespace strata::comm {

void run_scenarios(World& world);

}  // namespace strata::comm
