// The ranks of this host during an attempt, by their boards: which one ended first, when, and in which phase.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/process.h"
#include "train/rank_board.h"

namespace strata::launch {

class RankWatch {
 public:
  // Removes boards of earlier attempts. `folder`: the run's folder in memory, which may not exist yet.
  RankWatch(Path folder, int64_t attempt);

  // Finds new boards, and notes which processes have ended. Called often.
  void look();
  // Descriptors that become readable when a process ends.
  std::vector<int> descriptors() const;

  struct End {
    int64_t rank = 0;
    training::RankPhase phase = training::RankPhase::kInit;
    int64_t step = 0;
    double time = 0;      // Unix seconds
    bool is_sure = true;  // false: several ended between two looks
  };
  // The first rank that ended; of several between two looks, the one whose board has not changed for longest.
  const std::optional<End>& first_end() const { return first_; }
  // What a rank was last seen doing; nullopt: it has no board here.
  std::optional<End> last_seen(int64_t rank) const;
  // The last change of any board: the last sign of life if no process was seen ending.
  std::optional<double> last_change() const;
  // Removes the shared memory that Open MPI's processes of this attempt leave in /dev/shm if they are killed. Call it when
  // they are gone.
  void remove_segments() const;
  int64_t ranks() const { return std::ssize(watched_); }

 private:
  struct Watched {
    training::SeenBoard board;
    Descriptor process;  // not open: this kernel has none
    bool ended = false;
    std::string job;  // Open MPI's number of it, as in the names of its files; empty: unknown
  };
  static End end_of(const Watched& one, double time);

  Path folder_;
  int64_t attempt_;
  std::set<Path> known_;  // files of boards
  std::vector<Watched> watched_;
  std::optional<End> first_;
};

}  // namespace strata::launch
