// The interface between the program and its MPI module, and between the module's parts.
#pragma once

#include "comm/world.h"

namespace strata::comm {

inline constexpr const char* kMpiModule = "strata_mpi.so";
inline constexpr const char* kMakeMpiWorld = "strata_make_mpi_world";
// The caller owns the result; one per process. Rank and size are the launcher's.
using MakeMpiWorld = World* (*)(int rank, int size);

// Message tags; groups use the rest.
inline constexpr int kControlTag = 0;  // the watchdog's
inline constexpr int kSetupTag = 1;    // when groups are created
inline constexpr int kFirstGroupTag = 4;

}  // namespace strata::comm
