// What the program and its MPI module agree on.
#pragma once

#include "comm/world.h"

namespace strata::comm {

inline constexpr const char* kMpiModule = "strata_mpi.so";
inline constexpr const char* kMakeMpiWorld = "strata_make_mpi_world";
using MakeMpiWorld = World* (*)();  // the caller owns it; one a process

}  // namespace strata::comm
