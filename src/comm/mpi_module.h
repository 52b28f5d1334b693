// The interface between the program and its MPI module, and between the module's parts.
#pragma once

#include "comm/world.h"

namespace strata::comm {

inline constexpr const char* kMpiModule = "strata_mpi.so";
inline constexpr const char* kMakeMpiWorld = "strata_make_mpi_world";
// The caller owns it; one a process. Rank and size from the launcher.
using MakeMpiWorld = World* (*)(int rank, int size);

// Tags of messages; groups have the others.
inline constexpr int kControlTag = 0;  // the watchdog's
inline constexpr int kSetupTag = 1;    // when a group is made
inline constexpr int kFirstGroupTag = 4;

}  // namespace strata::comm
