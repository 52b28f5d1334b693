// The first weights of a model.
#pragma once

#include "program/executor.h"

namespace strata::program {

// Fills every parameter as its family starts it: a pure function of (seed, parameter name, element). Moments
// are zero.
void initialize_weights(Executor& executor, uint64_t seed);

}  // namespace strata::program
