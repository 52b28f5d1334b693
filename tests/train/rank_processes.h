// Ranks as processes of mpirun, which tests kill and stop at moments that are observable from outside.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "fixtures/tiny_run.h"

namespace strata::training {

inline void pause_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// A shell command and all processes that it starts.
class Job {
 public:
  Job(const std::string& line, const Path& output) {
    id_ = ::fork();
    if (id_ != 0) return;
    ::setpgid(0, 0);
    const int out = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::dup2(out, 1);
    ::dup2(out, 2);
    const std::string exec = "exec " + line;
    ::execl("/bin/sh", "sh", "-c", exec.c_str(), nullptr);
    ::_exit(127);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    if (id_ <= 0) return;
    for (const pid_t process : ranks()) ::kill(process, SIGKILL);  // also ends stopped ones
    ::kill(id_, SIGKILL);
    wait();
  }

  // The exit code, or -signal after a signal.
  int wait() {
    int status = 0;
    ::waitpid(id_, &status, 0);
    id_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  bool ended() const {
    siginfo_t info = {};
    return ::waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == id_;
  }
  // Waits until `seen` returns true; false: the job ended first.
  bool wait_until(const std::function<bool()>& seen) const {
    while (!seen()) {
      if (ended()) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }

  // The process of a rank: a child of mpirun with the rank in its environment. None: it has ended or not
  // started.
  std::optional<pid_t> process_of(int rank) const {
    const std::string wanted = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank);
    for (const pid_t process : ranks()) {
      const std::string environment = proc(process, "environ");
      for (size_t at = 0; at < environment.size(); at += wanted.size()) {
        at = environment.find(wanted, at);
        if (at == std::string::npos) break;
        if ((at == 0 || environment[at - 1] == '\0') && environment[at + wanted.size()] == '\0')
          return process;
      }
    }
    return std::nullopt;
  }
  // To the command itself.
  void signal(int number) const { ::kill(id_, number); }
  // False: the rank has ended.
  bool send(int rank, int signal) const {
    const auto process = process_of(rank);
    return process && ::kill(*process, signal) == 0;
  }

 private:
  static std::string proc(pid_t process, const std::string& file) {
    std::ifstream in("/proc/" + std::to_string(process) + "/" + file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // The child processes of mpirun.
  std::vector<pid_t> ranks() const {
    std::istringstream list(proc(id_, "task/" + std::to_string(id_) + "/children"));
    return {std::istream_iterator<pid_t>(list), {}};
  }

  pid_t id_ = 0;
};

class RankProcesses : public testing::Test {
 protected:
  void SetUp() override {
#ifndef STRATA_MPIRUN
    GTEST_SKIP() << "built without MPI";
#endif
    if (run(on(2) + "true") != 0) GTEST_SKIP() << "mpirun starts no processes here: " << output();
  }
  static std::string on(int processes) {
#ifdef STRATA_MPIRUN
    return std::string(STRATA_MPIRUN) +
           " --allow-run-as-root --oversubscribe --mca btl_vader_single_copy_mechanism none " + of(processes);
#else
    return of(processes);
#endif
  }
  // The number of processes for the next command, for jobs with a different command on each rank.
  static std::string of(int processes) {
    return "-n " + std::to_string(processes) + " ";
  }

  std::string strata(const std::string& name, const std::string& sets = "",
                     const std::string& program = STRATA_PROGRAM) const {
    put_file(tiny_.path(name + ".toml"), tiny_.toml(name));
    return program + " train " + tiny_.path(name + ".toml").string() + sets;
  }
  Path log() const {
    return tiny_.path("output");
  }
  int run(const std::string& line) const {
    return Job(line, log()).wait();
  }
  std::string output() const {
    return read_file(log());
  }
  Path checkpoints(const std::string& name) const {
    return tiny_.folder(name) / "checkpoints";
  }

  // Whether the folder of a save in progress contains a file.
  bool in_save(const std::string& name, const std::string& file) const {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoints(name), none))
      if (entry.path().filename().string().find(".tmp-") != std::string::npos &&
          std::filesystem::exists(entry.path() / file, none))
        return true;
    return false;
  }

  // Checks that every checkpoint of a run is complete, no matter when its ranks were killed.
  void expect_whole(const std::string& name, const std::string& what) const {
    for (const auto& listed : checkpoint::list_checkpoints(checkpoints(name)))
      for (const auto& problem : checkpoint::verify_checkpoint(listed.path))
        ADD_FAILURE() << what << ": " << listed.path << ", " << problem.file << ": " << problem.what;
  }
  void expect_equal_runs(const std::string& a, const std::string& b, int64_t steps) const {
    expect_same_bits(bits_of(tiny_.folder(a), steps), bits_of(tiny_.folder(b), steps), b);
    EXPECT_EQ(metrics_of(tiny_.folder(a)).steps, metrics_of(tiny_.folder(b)).steps) << b;
  }

  TinyRun tiny_;
};

}  // namespace strata::training
