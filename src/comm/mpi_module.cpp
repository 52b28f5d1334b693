#include "comm/mpi_module.h"

#include "comm/mpi_world.h"

extern "C" __attribute__((visibility("default"))) strata::comm::World* strata_make_mpi_world(int rank,
                                                                                             int size) {
  return new strata::comm::MpiWorld(rank, size);
}
