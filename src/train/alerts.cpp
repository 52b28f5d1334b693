#include "train/alerts.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigset_t is POSIX, not C++
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/log.h"

extern char** environ;

namespace strata::training {
namespace {

constexpr int kPollMilliseconds = 10;
constexpr size_t kMostOutput = size_t{64} << 10;  // of one command, in the log
constexpr double kKillSeconds = 1;                // a process that cannot be killed is left

// A file descriptor with an owner.
class Handle {
 public:
  explicit Handle(int number = -1) : number_(number) {}
  ~Handle() { close(); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  void open(int number) { number_ = number; }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }
  int get() const { return number_; }

 private:
  int number_;
};

struct Pipe {
  Handle read, write;
  bool open() {
    std::array<int, 2> ends = {-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read.open(ends[0]);
    write.open(ends[1]);
    return true;
  }
};

void do_not_block(int descriptor) {
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

// Starts a program in its own process group with standard signal handling. Returns 0 or an error number.
// posix_spawn, not fork: the process has other threads, and MPI has registered parts of its memory.
int spawn(std::vector<std::string> command, int input, int output, pid_t& id) {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
  posix_spawn_file_actions_addclosefrom_np(&actions,
                                           STDERR_FILENO + 1);  // libraries may open without CLOEXEC
#endif
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  const int error = ::posix_spawnp(&id, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Appends available output up to kMostOutput and drops the rest; closes the pipe at its end.
void take_output(Handle& from, std::string& output) {
  std::array<char, 4096> bytes = {};
  while (from.get() >= 0) {
    const ssize_t got = ::read(from.get(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return from.close();
    output.append(bytes.data(), std::min(static_cast<size_t>(got), kMostOutput - output.size()));
  }
}

// Writes as much as the pipe takes; closes it after the last byte, or if the program does not read.
void pass_input(Handle& to, std::string_view& rest) {
  while (to.get() >= 0) {
    const ssize_t put = ::write(to.get(), rest.data(), rest.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) return;
    if (put < 0) return to.close();
    rest.remove_prefix(static_cast<size_t>(put));
    if (rest.empty()) to.close();
  }
}

// Whether the process has ended; it remains a zombie, so that its number and its group's stay its own.
bool has_ended(pid_t id) {
  siginfo_t info = {};
  if (::waitid(P_PID, static_cast<id_t>(id), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return errno == ECHILD;
  return info.si_pid == id;
}

// Kills the process group and returns the status of its first process, if it ends soon.
std::optional<int> kill_group(pid_t id) {
  ::kill(-id, SIGKILL);
  int status = 0;
  for (const double begin = monotonic_seconds(); monotonic_seconds() < begin + kKillSeconds;) {
    if (const pid_t ended = ::waitpid(id, &status, WNOHANG); ended == id) return status;
    ::poll(nullptr, 0, 1);
  }
  return std::nullopt;
}

struct CommandEnd {
  std::string output;
  std::string failure;  // empty: exit code 0
};

CommandEnd run_command(const std::vector<std::string>& command, std::string_view input, double limit,
                       const std::atomic<double>& end) {
  Pipe to, from;
  if (!to.open() || !from.open()) return {"", fmt::format("cannot open a pipe: {}", std::strerror(errno))};
  pid_t id = 0;
  if (const int error = spawn(command, to.read.get(), from.write.get(), id); error != 0)
    return {"", fmt::format("cannot start {}: {}", command[0], std::strerror(error))};
  to.read.close();
  from.write.close();
  do_not_block(to.write.get());
  do_not_block(from.read.get());
  CommandEnd out;
  std::string late;
  for (const double begin = monotonic_seconds(); !has_ended(id);) {
    const double now = monotonic_seconds();
    if (now >= begin + limit) late = fmt::format("took more than {} s and was killed", limit);
    if (late.empty() && now >= end.load()) late = "was killed at the end of the run";
    if (!late.empty()) break;
    std::array<pollfd, 2> ready = {pollfd{to.write.get(), POLLOUT, 0}, pollfd{from.read.get(), POLLIN, 0}};
    ::poll(ready.data(), ready.size(), kPollMilliseconds);
    pass_input(to.write, input);
    take_output(from.read, out.output);
  }
  const std::optional<int> status = kill_group(id);
  take_output(from.read, out.output);
  if (!late.empty()) {
    out.failure = fmt::format("{} {}", command[0], late);
  } else if (status && WIFSIGNALED(*status)) {
    out.failure = fmt::format("{} was ended by signal {}", command[0], WTERMSIG(*status));
  } else if (status && WEXITSTATUS(*status) != 0) {
    out.failure = fmt::format("{} exited with code {}", command[0], WEXITSTATUS(*status));
  }
  return out;
}

}  // namespace

Alerts::Alerts(FileSystem& files, const Path& run, std::vector<std::string> command, AlertOptions options)
    : files_(files), folder_(run / "logs"), command_(std::move(command)), options_(std::move(options)) {}

Alerts::~Alerts() {
  try {
    finish();
  } catch (const std::exception&) {  // the disk of the log is full
  }
}

void Alerts::finish() {
  {
    const std::lock_guard lock(mutex_);
    if (!ending_) end_ = monotonic_seconds() + options_.end_seconds;
    ending_ = true;
  }
  wake_.notify_one();
  worker_.reset();
  report();
}

bool Alerts::raise(const std::string& rule, std::string event) {
  if (command_.empty() || ending_) return false;
  const double now = options_.clock();
  const auto last = last_.find(rule);
  if (last != last_.end() && now < last->second + options_.interval_seconds) return false;
  if (!event.ends_with('\n')) event += '\n';
  {
    const std::lock_guard lock(mutex_);
    if (queue_.size() >= options_.queued) return false;
    queue_.push_back({command_, rule, std::move(event)});
  }
  last_[rule] = now;
  try {
    if (!worker_) worker_ = std::make_unique<OwnedThread>([this](const std::stop_token&) { work(); });
  } catch (const std::system_error& error) {
    fail(fmt::format("cannot start a thread: {}", error.what()));
  }
  wake_.notify_one();
  return true;
}

void Alerts::report() {
  if (has_reported_ || !has_failed_.load(std::memory_order_acquire)) return;
  has_reported_ = true;
  const std::lock_guard lock(mutex_);
  log_warning("log.alert_command: {}; the run continues ({})", failure_, (folder_ / "alert.log").string());
}

void Alerts::work() {
  // A command may end before it has read the event.
  sigset_t pipe_closed;
  sigemptyset(&pipe_closed);
  sigaddset(&pipe_closed, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe_closed, nullptr);
  while (true) {
    Alert alert;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      if (monotonic_seconds() >= end_.load()) break;
      alert = std::move(queue_.front());
      queue_.pop_front();
    }
    run(alert);
  }
  fail("the run ended before all alerts were sent");
}

void Alerts::run(const Alert& alert) {
  const CommandEnd end = run_command(alert.command, alert.event, options_.limit_seconds, end_);
  if (!end.failure.empty()) fail(end.failure);
  try {
    write_log(alert, end.failure.empty() ? "done" : end.failure, end.output);
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void Alerts::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return;
  failure_ = why;
  has_failed_.store(true, std::memory_order_release);
}

void Alerts::write_log(const Alert& alert, const std::string& end, const std::string& output) {
  files_.create_directories(folder_);
  const Path path = folder_ / "alert.log";
  std::string text = fmt::format("{} {}: {}\n{}", utc_timestamp(), alert.rule, end, output);
  if (!text.ends_with('\n')) text += '\n';
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (!error && static_cast<int64_t>(size + text.size()) > options_.log_bytes)
    files_.rename(path, folder_ / "alert.log.1");
  const auto file = files_.open_for_writing(path, true);
  file->append(text);
  file->close();
}

}  // namespace strata::training
