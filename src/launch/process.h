// Processes that strata launch starts: commands whose output it reads, and the launcher with everything below it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace strata::launch {

// A file descriptor with an owner.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  void close();
  int get() const { return number_; }
  bool is_open() const { return number_ >= 0; }

 private:
  int number_;
};

// Reads the bytes that have arrived, at most a few blocks, without waiting. False: the other end is closed.
bool read_available(const Descriptor& from, std::string& to);

// A process in its own process group with standard signal handling, /dev/null as its input and pipes as its outputs.
// It gets SIGTERM if this process dies. Everything that it starts on this host and that outlives it becomes a child of
// this process, until the object is destroyed.
class ProcessTree {
 public:
  // `variables`: NAME=VALUE, added to this process's environment. WorldError if the program cannot be started.
  ProcessTree(const std::vector<std::string>& command, const std::vector<std::string>& variables);
  // Kills all remaining ones.
  ~ProcessTree();
  ProcessTree(const ProcessTree&) = delete;
  ProcessTree& operator=(const ProcessTree&) = delete;

  const Descriptor& output() const { return output_; }
  const Descriptor& errors() const { return errors_; }
  // To the first process only.
  void send(int signal) const;
  // The exit code of the first process, or 128 + the signal that ended it; nullopt: it runs.
  std::optional<int> code();
  // Whether anything that the first process started on this host still runs.
  bool has_children() const;
  // Kills all of them and returns once they are gone. False: some still exist after `seconds`, in a system call that
  // cannot be interrupted.
  bool end_all(double seconds);

 private:
  std::vector<pid_t> descendants() const;

  pid_t id_ = 0;
  std::optional<int> code_;
  int was_subreaper_ = 0;
  std::set<pid_t> others_;  // children that this process had before
  Descriptor output_, errors_;
};

struct CapturedEnd {
  int code = -1;       // 128 + the signal that ended it; -1: killed at the time limit, or not started
  std::string output;  // both streams, at most 64 KiB
};
CapturedEnd run_captured(const std::vector<std::string>& command, double seconds);
// All at the same time, with one time limit.
std::vector<CapturedEnd> run_captured(const std::vector<std::vector<std::string>>& commands, double seconds);

}  // namespace strata::launch
