#include "launch/process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigset_t is POSIX, not C++
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "base/clock.h"
#include "base/error.h"
#include "base/kernel_files.h"

extern char** environ;

namespace strata::launch {
namespace {

constexpr size_t kMostCaptured = size_t{64} << 10;
constexpr int kCapturePollMilliseconds = 10;

struct PipeEnds {
  Descriptor read, write;
};

PipeEnds open_pipe() {
  std::array<int, 2> ends = {-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw WorldError("[launch] cannot open a pipe: {}", std::strerror(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

void do_not_block(const Descriptor& descriptor) {
  ::fcntl(descriptor.get(), F_SETFL, ::fcntl(descriptor.get(), F_GETFL) | O_NONBLOCK);
}

// Pointers to words, as execve takes them.
std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// This process's environment with some variables replaced.
std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> out = variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = std::string_view(*entry).substr(0, std::string_view(*entry).find('='));
    const bool is_replaced = std::any_of(variables.begin(), variables.end(), [&](const std::string& one) {
      return one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=';
    });
    if (!is_replaced) out.emplace_back(*entry);
  }
  return out;
}

// In the child, between fork and exec: only calls that are safe after the fork of a process with threads.
[[noreturn]] void become(const char* program, char* const* arguments, char* const* variables, int output,
                         int errors, int failed, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);  // it died before the line above
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM, SIGPIPE, SIGHUP, SIGQUIT})
    ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int input = ::open("/dev/null", O_RDONLY);
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  if (input > STDERR_FILENO) ::close(input);
  ::execve(program, arguments, variables);
  const int error = errno;
  (void)!::write(failed, &error, sizeof error);
  ::_exit(127);
}

// Starts a program; throws WorldError if it cannot be executed.
pid_t start(std::vector<std::string> command, std::vector<std::string> variables, const Descriptor& output,
            const Descriptor& errors) {
  const std::vector<char*> arguments = pointers(command), environment = pointers(variables);
  PipeEnds failed = open_pipe();
  const pid_t parent = ::getpid(), id = ::fork();
  if (id == 0) {
    become(command.front().c_str(), arguments.data(), environment.data(), output.get(), errors.get(),
           failed.write.get(), parent);
  }
  int error = id < 0 ? errno : 0;
  failed.write.close();
  if (error == 0) {
    ::setpgid(id, id);  // whichever of the two processes comes first
    if (::read(failed.read.get(), &error, sizeof error) != static_cast<ssize_t>(sizeof error)) return id;
    ::waitpid(id, nullptr, 0);
  }
  throw WorldError("[{}] cannot be started: {}", command.front(), std::strerror(error));
}

int code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The parent of every process of this machine.
std::map<pid_t, pid_t> parents() {
  std::map<pid_t, pid_t> out;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator("/proc", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    pid_t id = 0;
    const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (wrong != std::errc() || end != name.data() + name.size()) continue;
    std::ifstream file(it->path() / "stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    // "ID (name) state parent …"; the name may contain anything.
    const size_t after = text.rfind(')');
    if (after == std::string::npos || after + 4 > text.size()) continue;
    pid_t parent = 0;
    std::from_chars(text.data() + after + 4, text.data() + text.size(), parent);
    out[id] = parent;
  }
  return out;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

void Descriptor::close() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

bool read_available(const Descriptor& from, std::string& to) {
  std::array<char, 65536> bytes;
  for (int blocks = 0; blocks < 4; ++blocks) {
    const ssize_t got = ::read(from.get(), bytes.data(), bytes.size());
    if (got > 0) {
      to.append(bytes.data(), static_cast<size_t>(got));
    } else if (got == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
  return true;
}

ProcessTree::ProcessTree(const std::vector<std::string>& command, const std::vector<std::string>& variables) {
  ::prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (const auto& [id, parent] : parents()) {
    if (parent == ::getpid()) others_.insert(id);
  }
  PipeEnds output = open_pipe(), errors = open_pipe();
  id_ = start(command, environment_with(variables), output.write, errors.write);
  output_ = std::move(output.read);
  errors_ = std::move(errors.read);
  do_not_block(output_);
  do_not_block(errors_);
}

ProcessTree::~ProcessTree() {
  constexpr double kSeconds = 2;
  end_all(kSeconds);
  ::prctl(PR_SET_CHILD_SUBREAPER, was_subreaper_);
}

void ProcessTree::send(int signal) const {
  if (!code_) ::kill(id_, signal);
}

std::optional<int> ProcessTree::code() {
  if (code_) return code_;
  int status = 0;
  if (::waitpid(id_, &status, WNOHANG) == id_) code_ = code_of(status);
  return code_;
}

std::vector<pid_t> ProcessTree::descendants() const {
  const std::map<pid_t, pid_t> parent_of = parents();
  std::vector<pid_t> out;
  for (const auto& [id, unused] : parent_of) {
    // Walks up to a child of this process.
    pid_t at = id;
    for (size_t i = 0; i <= parent_of.size(); ++i) {
      const auto found = parent_of.find(at);
      if (found == parent_of.end()) break;
      if (found->second == ::getpid()) {
        if (!others_.contains(at)) out.push_back(id);
        break;
      }
      at = found->second;
    }
  }
  return out;
}

bool ProcessTree::has_children() const {
  const std::vector<pid_t> all = descendants();
  return std::any_of(all.begin(), all.end(), [&](pid_t id) {
    // Zombies have ended.
    const std::string text = kernel_file(fmt::format("/proc/{}/stat", id));
    const size_t after = text.rfind(')');
    return id != id_ && after != std::string::npos && after + 2 < text.size() && text[after + 2] != 'Z';
  });
}

bool ProcessTree::end_all(double seconds) {
  // A process may start another one while the list is made, so it is made until it is empty.
  for (const double begin = monotonic_seconds(); true;) {
    if (!code()) ::kill(-id_, SIGKILL);
    const std::vector<pid_t> left = descendants();
    for (const pid_t id : left) {
      ::kill(id, SIGKILL);
      if (id != id_) ::waitpid(id, nullptr, WNOHANG);  // fails for those of other parents, which end first
    }
    if (left.empty() && code()) return true;
    if (monotonic_seconds() - begin > seconds) return false;
    ::poll(nullptr, 0, 1);
  }
}

CapturedEnd run_captured(const std::vector<std::string>& command, double seconds) {
  return run_captured(std::vector<std::vector<std::string>>{command}, seconds).front();
}

std::vector<CapturedEnd> run_captured(const std::vector<std::vector<std::string>>& commands, double seconds) {
  struct Running {
    pid_t id = 0;
    Descriptor output;
  };
  std::vector<Running> running;
  std::vector<CapturedEnd> ends(commands.size());
  for (size_t i = 0; i < commands.size(); ++i) {
    PipeEnds pipe = open_pipe();
    Running one;
    try {
      one.id = start(commands[i], environment_with({}), pipe.write, pipe.write);
    } catch (const WorldError& error) {
      ends[i].output = error.what();
    }
    one.output = std::move(pipe.read);
    do_not_block(one.output);
    running.push_back(std::move(one));
  }
  for (const double begin = monotonic_seconds(); true;) {
    bool is_any_running = false;
    const bool is_late = monotonic_seconds() - begin > seconds;
    for (size_t i = 0; i < running.size(); ++i) {
      Running& one = running[i];
      if (one.id == 0) continue;
      std::string text;
      read_available(one.output, text);
      ends[i].output.append(text, 0, kMostCaptured - std::min(kMostCaptured, ends[i].output.size()));
      if (is_late) ::kill(-one.id, SIGKILL);
      int status = 0;
      if (::waitpid(one.id, &status, is_late ? 0 : WNOHANG) != one.id) {
        is_any_running = true;
        continue;
      }
      if (!is_late) ends[i].code = code_of(status);
      read_available(one.output, ends[i].output);
      ::kill(-one.id, SIGKILL);  // other processes of its group
      one.id = 0;
    }
    if (!is_any_running) return ends;
    ::poll(nullptr, 0, kCapturePollMilliseconds);
  }
}

}  // namespace strata::launch
