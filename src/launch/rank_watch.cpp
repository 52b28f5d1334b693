#include "launch/rank_watch.h"

#include <poll.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is POSIX, not C++
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>

#include "base/clock.h"
#include "base/kernel_files.h"

namespace strata::launch {
namespace {

Descriptor open_process(pid_t id) {
#ifdef SYS_pidfd_open
  return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, id, 0)));
#else
  (void)id;
  return Descriptor();
#endif
}

// The number of a process's Open MPI job, from its environment, as the names of the job's files in /dev/shm have it.
std::string job_of(pid_t id) {
  const std::string environment = kernel_file(fmt::format("/proc/{}/environ", id));
  constexpr std::string_view kName = "PMIX_NAMESPACE=";
  for (size_t begin = 0; begin < environment.size(); begin = environment.find('\0', begin) + 1) {
    const std::string_view one =
        std::string_view(environment).substr(begin).substr(0, environment.find('\0', begin) - begin);
    if (one.starts_with(kName)) {
      const std::string_view number = one.substr(kName.size());
      uint32_t job = 0;
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), job);
      return error == std::errc() && end == number.data() + number.size() ? fmt::format("{:x}", job) : "";
    }
    if (environment.find('\0', begin) == std::string::npos) break;
  }
  return "";
}

bool has_ended(const Descriptor& process, pid_t id) {
  if (!process.is_open()) return ::kill(id, 0) != 0 && errno == ESRCH;
  pollfd one{process.get(), POLLIN, 0};
  return ::poll(&one, 1, 0) == 1;
}

}  // namespace

RankWatch::RankWatch(Path folder, int64_t attempt) : folder_(std::move(folder)), attempt_(attempt) {
  std::error_code error;
  for (const Path& board : training::board_files(folder_)) std::filesystem::remove(board, error);
}

RankWatch::End RankWatch::end_of(const Watched& one, double time) {
  return {.rank = one.board.rank(),
          .phase = one.board.phase(),
          .step = one.board.step(),
          .time = time,
          .is_sure = true};
}

void RankWatch::look() {
  for (const Path& path : training::board_files(folder_)) {
    if (known_.contains(path)) continue;
    auto board = training::SeenBoard::open(path);
    if (!board || board->attempt() != attempt_) continue;
    known_.insert(path);
    Descriptor process = open_process(board->process());
    std::string job = job_of(board->process());
    watched_.push_back({*std::move(board), std::move(process), false, std::move(job)});
  }
  std::optional<End> first;
  double oldest = 0;
  int ended = 0;
  for (Watched& one : watched_) {
    if (one.ended || !has_ended(one.process, one.board.process())) continue;
    one.ended = true;
    one.process.close();
    ++ended;
    if (first && one.board.changed() >= oldest) continue;
    first = end_of(one, unix_seconds());
    oldest = one.board.changed();
  }
  if (first) first->is_sure = ended == 1;
  if (!first_) first_ = first;
}

std::vector<int> RankWatch::descriptors() const {
  std::vector<int> out;
  for (const Watched& one : watched_) {
    if (!one.ended && one.process.is_open()) out.push_back(one.process.get());
  }
  return out;
}

std::optional<RankWatch::End> RankWatch::last_seen(int64_t rank) const {
  for (const Watched& one : watched_) {
    if (one.board.rank() == rank) return end_of(one, one.board.changed());
  }
  return std::nullopt;
}

void RankWatch::remove_segments() const {
  std::set<std::string> jobs;
  for (const Watched& one : watched_) {
    if (!one.job.empty()) jobs.insert(one.job);
  }
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator("/dev/shm", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    // vader_segment.HOST.USER.JOB.RANK; Open MPI 5: sm_segment.
    if (!name.starts_with("vader_segment.") && !name.starts_with("sm_segment.")) continue;
    for (const std::string& job : jobs) {
      if (name.find(fmt::format(".{}.{}.", ::geteuid(), job)) == std::string::npos) continue;
      std::error_code ignored;
      std::filesystem::remove(it->path(), ignored);
    }
  }
}

std::optional<double> RankWatch::last_change() const {
  std::optional<double> last;
  for (const Watched& one : watched_) last = std::max(last.value_or(0), one.board.changed());
  return last;
}

}  // namespace strata::launch
