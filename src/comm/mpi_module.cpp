#include "comm/mpi_module.h"

#include <mpi.h>

#include <cstdlib>

namespace strata::comm {
namespace {

class MpiWorld final : public World {
 public:
  MpiWorld() {
    // Only the thread that owns the world calls MPI.
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~MpiWorld() override { MPI_Finalize(); }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  void abort(int code) override {
    MPI_Abort(MPI_COMM_WORLD, code);
    std::abort();
  }

 private:
  int rank_ = 0, size_ = 1;
};

}  // namespace
}  // namespace strata::comm

extern "C" strata::comm::World* strata_make_mpi_world() {
  return new strata::comm::MpiWorld();
}
