// A program of several ranks, run under mpirun by mpi_test.cpp. comm_mpi_ranks MODE …
//   cases FOLDER CHUNK PROGRESS   runs all cases and writes this rank's results to FOLDER
//   scenarios PROGRESS            groups, messages and texts
//   idle                          one rank sleeps, the others wait; exit code 1 if waiting uses their cores
//   failure WHAT RANK             sums until rank RANK does WHAT: throw, die, stop, hang, leave, differ
#include <fmt/core.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "comm/collective_cases.h"
#include "comm/scenarios.h"

namespace strata::comm {
namespace {

int run_cases(World& world, const std::string& folder, int64_t chunk, bool thread) {
  world.configure({.chunk_bytes = chunk, .progress_thread = thread});
  const auto results = run_all_cases(world, collective_cases());
  std::ofstream file(folder + "/" + std::to_string(world.rank()), std::ios::binary);
  for (const auto& transfers : results) {
    for (const Bytes& bytes : transfers) {
      file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
  }
  return 0;
}

int run_idle(World& world) {
  world.barrier();
  const std::clock_t before = std::clock();
  if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  world.barrier();
  const double seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  if (seconds > 0.15) fmt::print(stderr, "rank {} worked {:.2f} of 1 s\n", world.rank(), seconds);
  return seconds > 0.15 ? 1 : 0;
}

// Sums in a loop, until one rank fails.
int run_failure(World& world, const std::string& what, int failing) {
  world.configure({.silence_limit = 2, .wait_limit = what == "hang" || what == "lose" ? 1.0 : 60.0});
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  const auto group = world.group(all, "everyone");
  std::vector<float> values(100000, 1), more(100001);
  const auto sum = group->prepare({.transfers = {{.bytes = 400000}}, .label = "all-reduce of gradients"});
  const auto other =
      group->prepare({.transfers = {{.bytes = 400004}}, .label = "all-reduce of something else"});
  const auto bytes = [](std::vector<float>& of) { return Buffers{of.data(), of.data()}; };
  for (int step = 0;; ++step) {
    world.doing(fmt::format("step {}", step));
    // Slow enough that the loop takes several heartbeats.
    if (what == "stop") std::this_thread::sleep_for(std::chrono::milliseconds(60));
    if (step == 20 && world.rank() == failing) {
      if (what == "throw") throw DataError("shard 7 is torn");
      if (what == "die") ::raise(SIGKILL);
      if (what == "stop") ::raise(SIGSTOP);
      if (what == "leave") return 0;
      if (what == "lose") world.lose_next();
      while (what == "hang") {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        world.check();
      }
      if (what == "differ") {
        const Buffers buffers[] = {bytes(more)};
        group->wait(group->start(*other, buffers));
      }
    }
    const Buffers buffers[] = {bytes(values)};
    group->wait(group->start(*sum, buffers));
  }
}

int run_mode(World& world, std::span<char*> arguments) {
  const std::string mode = arguments[1];
  if (mode == "cases") {
    return run_cases(world, arguments[2], std::atoll(arguments[3]),
                     std::string_view(arguments[4]) == "thread");
  }
  if (mode == "scenarios") {
    world.configure({.chunk_bytes = 1024, .progress_thread = std::string_view(arguments[2]) == "thread"});
    run_scenarios(world);
    return 0;
  }
  if (mode == "idle") return run_idle(world);
  if (mode == "failure") return run_failure(world, arguments[2], std::atoi(arguments[3]));
  fmt::print(stderr, "unknown mode '{}'\n", mode);
  return 2;
}

int run(std::span<char*> arguments) {
  std::unique_ptr<World> world;
  try {
    world = world_of_launcher();
    return run_mode(*world, arguments);
  } catch (const Error& error) {
    const int code = exit_code(error.kind());
    if (world == nullptr) {
      fmt::print(stderr, "{}\n", error.what());
      return code;
    }
    // Notify all ranks, and print the error on every rank before the world ends them. The exit code is that
    // of the first failing rank, not of those that it notified.
    world->fail(code, error.what());
    fmt::print(stderr, "rank {}: {}\n", world->rank(), error.what());
    world->abort(code);
    return code;
  }
}

}  // namespace
}  // namespace strata::comm

int main(int count, char** arguments) {
  return strata::comm::run({arguments, static_cast<size_t>(count)});
}
