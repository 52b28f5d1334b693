#include "train/rank_board.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill() is POSIX, not C++
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

namespace strata::training {
namespace {

constexpr std::array<std::string_view, 10> kPhases = {"init",   "data", "forward", "backward",   "reduce",
                                                      "update", "save", "copy",    "evaluation", "exit"};
constexpr std::string_view kSuffix = ".board";

}  // namespace

std::string_view name_of(RankPhase phase) {
  return kPhases[static_cast<size_t>(phase)];
}

BoardMap::BoardMap(const Path& path, bool writable) {
  const int descriptor = ::open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return;
  struct stat info {};
  if (::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) &&
      info.st_size == static_cast<off_t>(sizeof(BoardContent))) {
    void* const at = ::mmap(nullptr, sizeof(BoardContent), writable ? PROT_READ | PROT_WRITE : PROT_READ,
                            MAP_SHARED, descriptor, 0);
    if (at != MAP_FAILED) content_ = static_cast<BoardContent*>(at);
  }
  ::close(descriptor);
}

BoardMap::~BoardMap() {
  if (content_ != nullptr) ::munmap(content_, sizeof(BoardContent));
}

BoardMap::BoardMap(BoardMap&& other) noexcept : content_(std::exchange(other.content_, nullptr)) {}

BoardMap& BoardMap::operator=(BoardMap&& other) noexcept {
  std::swap(content_, other.content_);
  return *this;
}

RankBoard::RankBoard(const Path& folder, int rank, int attempt) {
  const Path path = folder / fmt::format("rank-{}{}", rank, kSuffix);
  // Complete before it has its name.
  const Path made = folder / fmt::format(".rank-{}-{}", rank, ::getpid());
  try {
    BoardContent first;
    first.rank = rank;
    first.process = ::getpid();
    first.attempt = attempt;
    first.changed = unix_seconds();
    const auto file = posix_file_system().open_for_writing(made);
    file->append(&first, sizeof first);
    file->close();
    map_ = BoardMap(made, true);
    posix_file_system().rename(made, path);
    path_ = path;
  } catch (const WorldError& error) {
    log_warning("[{}] {}; the ledger will lack what rank {} was doing", path.string(), error.what(), rank);
  }
}

void RankBoard::enter(RankPhase phase, int64_t step) {
  BoardContent* const content = map_.content();
  if (content == nullptr) return;
  content->step.store(step, std::memory_order_relaxed);
  content->phase.store(static_cast<int32_t>(phase), std::memory_order_relaxed);
  content->changed.store(unix_seconds(), std::memory_order_relaxed);
}

void RankBoard::remove() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
  ::rmdir(path_.parent_path().c_str());
  path_.clear();
}

std::optional<SeenBoard> SeenBoard::open(const Path& path) {
  BoardMap map(path, false);
  if (map.content() == nullptr || map.content()->magic != BoardContent::kMagic) return std::nullopt;
  return SeenBoard(std::move(map));
}

RankPhase SeenBoard::phase() const {
  const int32_t phase = map_.content()->phase;
  return static_cast<RankPhase>(std::clamp<int32_t>(phase, 0, static_cast<int32_t>(kPhases.size()) - 1));
}

void remove_old_boards(const Path& folder) {
  for (const Path& path : board_files(folder)) {
    const auto board = SeenBoard::open(path);
    const bool has_ended =
        !board || board->process() == ::getpid() || (::kill(board->process(), 0) != 0 && errno == ESRCH);
    std::error_code ignored;
    if (has_ended) std::filesystem::remove(path, ignored);
  }
  ::rmdir(folder.c_str());
}

std::vector<Path> board_files(const Path& folder) {
  std::vector<Path> out;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(folder, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    if (it->path().extension() == kSuffix) out.push_back(it->path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace strata::training
