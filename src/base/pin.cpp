#include "base/pin.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/parallel.h"

namespace strata {
namespace {

cpu_set_t mask_of_this_thread() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) CPU_ZERO(&mask);
  return mask;
}

// Every compute thread but the first takes the mask that `mask_for` returns for it. A refused mask changes
// nothing.
void set_masks(FunctionRef<cpu_set_t(int)> mask_for) {
  on_each_thread([&](int thread) {
    if (thread == 0) return;
    const cpu_set_t mask = mask_for(thread);
    sched_setaffinity(0, sizeof mask, &mask);
  });
}

// An abstract socket: not a file, and freed by the kernel if the process dies. -1: the name is taken.
int take_claim(std::string_view name) {
  const int descriptor = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t size = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), size);
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  if (::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), bytes) == 0) return descriptor;
  ::close(descriptor);
  return -1;
}

}  // namespace

bool pinning_helps(int threads, int allowed_processors, int machine_processors) {
#ifdef STRATA_PLAIN_THREADS
  return false;  // its threads are others at each call
#endif
  return threads > 1 && threads == allowed_processors && allowed_processors == machine_processors;
}

PinnedThreads::PinnedThreads(bool wanted, std::string_view claim) {
  const cpu_set_t allowed = mask_of_this_thread();
  const auto machine = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (!wanted || !pinning_helps(compute_threads(), CPU_COUNT(&allowed), machine)) return;
  claim_ = take_claim(claim);
  if (!pinned()) return;
  std::vector<int> processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  }
  set_masks([&](int thread) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processors[static_cast<size_t>(thread)], &one);
    return one;
  });
}

PinnedThreads::~PinnedThreads() {
  if (!pinned()) return;
  const cpu_set_t allowed = mask_of_this_thread();
  set_masks([&](int) { return allowed; });
  ::close(claim_);
}

}  // namespace strata
