#include "comm/mpi_calls.h"

#include <array>
#include <string>

#include "base/error.h"

namespace strata::comm {
namespace {

constexpr const char* kClosed = "[mpi] the job has failed: messages can no longer be sent";

void check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw WorldError("[mpi] {} failed: {}", call, std::string(text.data(), static_cast<size_t>(length)));
}

}  // namespace

void MpiCalls::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

MpiRequest MpiCalls::send(const void* from, int64_t bytes, int to, int tag) {
  MpiRequest made{.bytes = bytes, .peer = to};
  const std::lock_guard lock(mutex_);
  if (closed_) throw WorldError(kClosed);
  check(MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, to, tag, MPI_COMM_WORLD, &made.request),
        "MPI_Isend");
  return made;
}

MpiRequest MpiCalls::receive(void* to, int64_t bytes, int from, int tag) {
  MpiRequest made{.bytes = bytes, .peer = from, .receiving = true};
  const std::lock_guard lock(mutex_);
  if (closed_) throw WorldError(kClosed);
  check(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, from, tag, MPI_COMM_WORLD, &made.request),
        "MPI_Irecv");
  return made;
}

bool MpiCalls::done(MpiRequest& request) {
  if (request.request == MPI_REQUEST_NULL) return true;
  int flag = 0, bytes = 0;
  MPI_Status status;
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  check(MPI_Test(&request.request, &flag, &status), "MPI_Test");
  if (flag == 0) return false;
  if (!request.receiving) return true;
  check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  STRATA_CHECK(bytes == request.bytes, "found a message of {} bytes from rank {}: expected {}", bytes,
               request.peer, request.bytes);
  return true;
}

std::optional<MpiCalls::Arrival> MpiCalls::arrival(int tag) {
  int flag = 0, bytes = 0;
  MPI_Status status;
  const std::lock_guard lock(mutex_);
  if (closed_) return std::nullopt;
  check(MPI_Iprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &flag, &status), "MPI_Iprobe");
  if (flag == 0) return std::nullopt;
  check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  return Arrival{.from = status.MPI_SOURCE, .bytes = bytes};
}

void MpiCalls::cancel(MpiRequest& request) {
  const std::lock_guard lock(mutex_);
  if (closed_ || request.request == MPI_REQUEST_NULL) return;
  if (request.receiving) MPI_Cancel(&request.request);
  MPI_Request_free(&request.request);
}

}  // namespace strata::comm
