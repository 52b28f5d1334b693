// The first weights of a model.
#pragma once

#include "program/executor.h"

namespace strata::program {

// Writes a rank's coordinates on the programs' mesh; call once, before anything runs.
void write_coordinates(const Executor& executor);

// Fills every parameter as its family starts it: a pure function of (seed, parameter name, element of the
// whole parameter), so that all layouts begin with the same bits. Moments stay zero, as an executor begins
// with them. All ranks of the executor call this at the same place.
void initialize_weights(Executor& executor, uint64_t seed);

}  // namespace strata::program
