// What each rank of a run is doing, in the run's folder in memory: a small file per rank that the rank maps and writes
// with plain stores, so that it shows the last thing that a killed rank did.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace strata::training {

enum class RankPhase : int32_t {
  kInit,
  kData,
  kForward,
  kBackward,
  kReduce,  // waits for the reports of all ranks, after the update
  kUpdate,
  kSave,
  kCopy,
  kEvaluation,
  kExit,
};
std::string_view name_of(RankPhase phase);

// The content of a file. Other versions of the program do not read each other's.
struct BoardContent {
  static constexpr uint64_t kMagic = 0x3130647261426b52;  // "RkBard01"
  uint64_t magic = kMagic;
  int32_t rank = 0, process = 0;
  std::atomic<int32_t> phase = 0;
  int32_t attempt = 0;
  std::atomic<int64_t> step = 0;    // that the rank is working on
  std::atomic<double> changed = 0;  // Unix seconds of the last change
};
static_assert(std::atomic<double>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free &&
                  std::atomic<int32_t>::is_always_lock_free,
              "processes share it, and the writer may be killed at any time");

// A mapped file of this size.
class BoardMap {
 public:
  BoardMap() = default;
  // nullptr as content: it could not be mapped.
  BoardMap(const Path& path, bool writable);
  ~BoardMap();
  BoardMap(BoardMap&& other) noexcept;
  BoardMap& operator=(BoardMap&& other) noexcept;
  BoardContent* content() const { return content_; }

 private:
  BoardContent* content_ = nullptr;
};

// The writer. Without a folder it does nothing. Used by one thread.
class RankBoard {
 public:
  RankBoard() = default;
  // Creates FOLDER/rank-R.board. A board that cannot be written is left out with a warning: it only serves the ledger.
  RankBoard(const Path& folder, int rank, int attempt);

  void enter(RankPhase phase, int64_t step);
  // At the end of a run: nothing has failed. The last rank of a host removes the folder too, if nothing else is in it.
  void remove();

 private:
  BoardMap map_;
  Path path_;
};

// The reader. It keeps the file's content even after the file is removed.
class SeenBoard {
 public:
  // nullopt: not a board, or of another version.
  static std::optional<SeenBoard> open(const Path& path);

  int rank() const { return map_.content()->rank; }
  int process() const { return map_.content()->process; }
  int attempt() const { return map_.content()->attempt; }
  int64_t step() const { return map_.content()->step; }
  RankPhase phase() const;
  double changed() const { return map_.content()->changed; }

 private:
  explicit SeenBoard(BoardMap map) : map_(std::move(map)) {}
  BoardMap map_;
};

// At the end of a run: removes the boards of this process and of those that have ended, and the folder if nothing else is in it.
void remove_old_boards(const Path& folder);

// The files of all boards in a folder.
std::vector<Path> board_files(const Path& folder);

}  // namespace strata::training
