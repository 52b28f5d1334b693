// The MPI calls of the engine: none blocks, and a mutex serializes them (MPI_THREAD_SERIALIZED).
#pragma once

#include <mpi.h>

#include <cstdint>
#include <mutex>
#include <optional>

namespace strata::comm {

// A message in flight.
struct MpiRequest {
  MPI_Request request = MPI_REQUEST_NULL;
  int64_t bytes = 0;
  int peer = 0;
  bool receiving = false;
};

// Throws a WorldError if MPI reports an error.
class MpiCalls {
 public:
  // From now on no thread calls MPI: messages in flight stay incomplete, nothing arrives, and send() and
  // receive() throw. MPI then no longer accesses buffers of incomplete requests, so they may be freed.
  void close();
  MpiRequest send(const void* from, int64_t bytes, int to, int tag);
  MpiRequest receive(void* to, int64_t bytes, int from, int tag);
  // WorldError if a message's size differs from the receive's.
  bool done(MpiRequest& request);
  struct Arrival {
    int from = 0;
    int64_t bytes = 0;
  };
  // Probes for a message with this tag.
  std::optional<Arrival> arrival(int tag);
  // Cancels as far as MPI can, before the buffer is freed.
  void cancel(MpiRequest& request);

 private:
  std::mutex mutex_;
  bool closed_ = false;
};

}  // namespace strata::comm
