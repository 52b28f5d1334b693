// The few calls of MPI that the engine makes, none of which blocks, one at a time (MPI_THREAD_SERIALIZED).
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

// Each throws WorldError where MPI reports an error.
class MpiCalls {
 public:
  // From now on nothing reaches MPI, on any thread: messages in flight stay so, nothing arrives, and send and
  // receive throw. MPI then no longer touches the buffers of requests that were never completed, which may
  // be freed.
  void close();
  MpiRequest send(const void* from, int64_t bytes, int to, int tag);
  MpiRequest receive(void* to, int64_t bytes, int from, int tag);
  // WorldError if a message's size differs from the receive's.
  bool done(MpiRequest& request);
  struct Arrival {
    int from = 0;
    int64_t bytes = 0;
  };
  // A message with this tag that waits to be received.
  std::optional<Arrival> arrival(int tag);
  // As far as that goes: for buffers that are about to go.
  void cancel(MpiRequest& request);

 private:
  std::mutex mutex_;
  bool closed_ = false;
};

}  // namespace strata::comm
