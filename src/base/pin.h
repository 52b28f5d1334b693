// Compute threads bound to processors, each to one of its own.
#pragma once

#include <string_view>

namespace strata {

// Binds the compute threads of the calling thread while it lives: thread i to the i-th processor. The first
// one, the caller, stays free, and so do the threads that it starts, which inherit its mask; with all other
// processors taken the system keeps it on the remaining one.
// It binds only if that can only help: if there are as many threads as processors, if the process may use all
// processors of the machine (otherwise a batch system or taskset has already placed it), and if no other
// process holds `claim`: two runs bound alike would share processors while others idle. Threads that the pool
// creates later, after a smaller team, are free.
class PinnedThreads {
 public:
  explicit PinnedThreads(bool wanted, std::string_view claim = "strata-processors");
  ~PinnedThreads();
  PinnedThreads(const PinnedThreads&) = delete;
  PinnedThreads& operator=(const PinnedThreads&) = delete;

  bool pinned() const { return claim_ >= 0; }

 private:
  int claim_ = -1;  // a socket whose name one process of the machine can hold; -1: nothing is bound
};

// Whether these numbers allow it.
bool pinning_helps(int threads, int allowed_processors, int machine_processors);

}  // namespace strata
