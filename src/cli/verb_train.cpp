// strata train
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/actions.h"
#include "cli/output.h"
#include "cli/run_inputs.h"
#include "cli/verbs.h"
#include "train/trainer.h"

namespace strata::cli {

namespace {

// How the ranks were started, against what the configuration says of it.
void check_ranks(int64_t threads, int processes, config::Backend backend) {
  using config::Backend;
  constexpr int64_t kMostThreads = 1024;
  if (threads > kMostThreads) {
    throw ConfigError(
        "[--ranks] found {}, expected at most {} threads of one process; start more with mpirun", threads,
        kMostThreads);
  }
  if (threads > 1 && processes > 1) {
    throw ConfigError(
        "[--ranks] found {}, and a launcher started {} processes; give --ranks, which makes threads of one "
        "process, or "
        "start processes, not both",
        threads, processes);
  }
  if (backend == Backend::kMpi && processes == 1)
    throw ConfigError(
        "[parallel.backend] found \"mpi\", and no launcher started this process; start it with mpirun -n N");
  if (backend == Backend::kLocal && processes > 1) {
    throw ConfigError(
        "[parallel.backend] found \"local\", and a launcher started {} processes; leave it at \"auto\", or "
        "start one "
        "process with --ranks {}",
        processes, processes);
  }
}

// Ends the job with what this process failed with. Said once: by the rank that failed first, or that found
// another one gone. What all ranks find wrong alike, such as a key of the configuration, the first of them
// says.
[[noreturn]] void end_job(comm::World& world, int code, const std::string& message) {
  for (int i = 0; i < 20 && world.rank() > 0 && world.failed_rank() < 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  const bool is_told = world.failed_rank() >= 0 && world.failed_rank() != world.rank();
  if (!is_told) log_error("rank {}: {}", world.rank(), message);
  if (world.failed_rank() < 0) world.fail(code, message);
  world.abort(code);
  std::abort();  // the compiler does not see that a virtual function never returns
}

// As one of the processes that a launcher started.
train::TrainResult train_as_process(comm::World& world, const train::RunOptions& run, int64_t threads) {
  try {
    check_ranks(threads, world.size(), run.config.parallel.backend);
    train::RunOptions mine = run;
    mine.world = &world;
    train::TrainResult made = train::train_run(mine, stop_requested);
    made.rank = world.rank();
    return made;
  } catch (const Interrupted&) {
    end_job(world, stop_exit_code(), "stopped before the first step");
  } catch (const Error& error) {
    end_job(world, exit_code(error.kind()), error.what());
  } catch (const std::exception& error) {
    end_job(world, exit_code(ErrorKind::kInternal), error.what());
  }
}

// On as many ranks as were started.
train::TrainResult train_on_ranks(const train::RunOptions& run, int64_t threads) {
  const auto world = comm::world_of_launcher();
  if (world->size() > 1) return train_as_process(*world, run, threads);
  check_ranks(threads, 1, run.config.parallel.backend);
  return train::train_on_threads(run, static_cast<int>(threads), stop_requested);
}

// Where things are now, and how to go on.
void say_end(const train::TrainResult& result, const std::string& folder) {
  switch (result.end) {
    case train::RunEnd::kFinished:
      log_info("the model is in {0}/final; curves and samples are in {0}/index.html", folder);
      break;
    case train::RunEnd::kInterrupted:
      if (result.step > 0)
        log_info("stopped: step {} is saved in {}/checkpoints; the same command goes on from there",
                 result.step, folder);
      break;
    case train::RunEnd::kTimeLimit:
      log_info("time limit: step {} is saved in {}/checkpoints; start the same command again to go on",
               result.step, folder);
      break;
    case train::RunEnd::kDryRun:
      break;
  }
}

}  // namespace

int run_training(const TrainOptions& options) {
  train::RunOptions run;
  run.config = read_command_config(options.inputs, options.sets);
  run.accept_changes = options.accept_changes;
  run.dry_run = options.dry_run;
  switch (options.resume) {
    case ResumeMode::kAuto:
      run.resume = "auto";
      break;
    case ResumeMode::kNever:
      run.resume = "never";
      break;
    case ResumeMode::kFrom:
      run.resume = options.resume_from.string();
      break;
  }
  const train::TrainResult result = [&]() -> train::TrainResult {
    try {
      return train_on_ranks(run, options.ranks);
    } catch (const Interrupted&) {
      log_info("stopped before the first step; the same command starts again");
      return {train::RunEnd::kInterrupted, 0, 0};
    }
  }();
  if (result.rank == 0) say_end(result, run.config.run.folder);
  if (options.json && result.rank == 0) {
    static constexpr const char* kEnds[] = {"finished", "interrupted", "time_limit", "dry_run"};
    nlohmann::ordered_json json{{"end", kEnds[static_cast<size_t>(result.end)]},
                                {"step", result.step},
                                {"loss", result.loss},
                                {"folder", run.config.run.folder}};
    if (!result.program.empty()) json["fingerprint"] = result.program;
    print_out("{}\n", dump_json(json));
  }
  switch (result.end) {
    case train::RunEnd::kInterrupted:
      return stop_exit_code();
    case train::RunEnd::kTimeLimit:
      return kTimeLimitExitCode;
    default:
      return 0;
  }
}

void add_train(Verb root) {
  auto options = std::make_shared<TrainOptions>();
  auto resume = std::make_shared<std::string>("auto");
  Verb verb = root.verb("train", "Train a model; the same command goes on where a run was",
                        "strata train RUN.toml --set training.steps=2000");
  verb.option(
          "RUN.toml", options->inputs,
          "A configuration, or the folder of a run to go on with; or texts, or folders of data builds, to "
          "train on without one")
      .required();
  verb.sets(options->sets).suggest(configuration_keys());
  verb.option("--resume", *resume,
              "auto: go on where the run's folder stands; never: refuse a folder that holds a run; DIR: "
              "from that "
              "checkpoint")
      .type_name("auto|never|DIR")
      .suggest({"auto", "never"});
  verb.option("--ranks", options->ranks,
              "Ranks that share the work as threads of this process; processes are started with mpirun -n N")
      .positive()
      .type_name("N");
  verb.flag("--accept-changes", options->accept_changes, "Resume although keys of the training changed");
  verb.flag("--dry-run", options->dry_run, "Check configuration, inputs, disk and plan, then stop");
  verb.json(options->json);
  verb.action([options, resume] {
    options->resume = *resume == "auto"    ? ResumeMode::kAuto
                      : *resume == "never" ? ResumeMode::kNever
                                           : ResumeMode::kFrom;
    if (options->resume == ResumeMode::kFrom) options->resume_from = *resume;
    return run_training(*options);
  });
}

}  // namespace strata::cli
