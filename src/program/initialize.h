// The first weights of a model.
#pragma once

#include "program/executor.h"

namespace strata::program {

// Tells a rank where it is on the programs' mesh: once, before anything runs.
void write_coordinates(const Executor& executor, const graph::Coordinates& coordinates);

// Fills every parameter as its family starts it: a pure function of (seed, parameter name, element of the
// whole parameter), so that all layouts begin with the same bits. Moments stay zero, as an executor begins
// with them. `coordinates`: of this rank on the programs' mesh, where that has several. Where the executor
// has ranks, all of them call this at the same place.
void initialize_weights(Executor& executor, uint64_t seed, const graph::Coordinates& coordinates = {});

}  // namespace strata::program
