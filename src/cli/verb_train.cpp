// strata train
#include <cstdlib>
#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "base/kernel_files.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/actions.h"
#include "cli/output.h"
#include "cli/run_inputs.h"
#include "cli/verbs.h"
#include "comm/launcher.h"
#include "train/trainer.h"

namespace strata::cli {

namespace {

// Checks how the ranks were started against the configuration.
void check_ranks(int64_t threads, int processes, config::Auto<config::Backend> backend) {
  using config::Backend;
  constexpr int64_t kMostThreads = 1024;
  if (threads > kMostThreads) {
    throw ConfigError(
        "[--ranks] found {}, expected at most {} threads of one process; start more with mpirun", threads,
        kMostThreads);
  }
  if (threads > 1 && processes > 1) {
    throw ConfigError(
        "[--ranks] found {}, but a launcher started {} processes; give --ranks, which makes threads of one "
        "process, or "
        "start processes, not both",
        threads, processes);
  }
  if (backend == Backend::kMpi && processes == 1)
    throw ConfigError(
        "[parallel.backend] found \"mpi\", but no launcher started this process; start it with mpirun -n N");
  if (backend == Backend::kLocal && processes > 1) {
    throw ConfigError(
        "[parallel.backend] found \"local\", but a launcher started {} processes; leave it at \"auto\", or "
        "start one process with --ranks {}",
        processes, processes);
  }
}

// Ends the job with this process's error. Printed once: by the rank that failed first, or found another one
// lost.
[[noreturn]] void end_job(comm::World& world, int code, const std::string& message) {
  set_stop_text("");  // the launcher ends the others by a signal; the error message suffices
  comm::fail_once(world, code, message);
  if (world.failed_rank() == world.rank()) log_end(fmt::format("rank {}: {}", world.rank(), message));
  world.abort(code);
  std::abort();  // the compiler does not see that a virtual function never returns
}

[[noreturn]] void end_job(comm::World& world, const std::exception& error) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  end_job(world, exit_code(known != nullptr ? known->kind() : ErrorKind::kInternal), error.what());
}

using ReadRun = std::function<train::RunOptions()>;

// Runs as one of several processes that a launcher started.
train::TrainResult train_as_process(comm::World& world, const ReadRun& read, int64_t threads) {
  try {
    train::RunOptions run = read();
    check_ranks(threads, world.size(), run.config.parallel.backend);
    run.failed = [&world](const std::exception& error) { end_job(world, error); };
    train::TrainResult made = train::train_run(world, run, stop_requested);
    made.rank = world.rank();
    return made;
  } catch (const Interrupted&) {
    end_job(world, stop_exit_code(), "stopped before the first step");
  } catch (const std::exception& error) {
    end_job(world, error);
  }
}

// Only one of many ranks reports a stop, or missing files of the kernel. Slurm leaves ranks half a minute.
void prepare_reports() {
  const auto launched = comm::launched_rank([](const char* name) { return std::getenv(name); });
  if (!launched || launched->rank == 0) {
    for (const std::string& warning : missing_kernel_files()) log_warning("{}", warning);
  }
  if (!launched || launched->size == 1) return;
  if (launched->rank > 0) set_stop_text("");
  if (launched->launcher != "Slurm") expect_force();
}

// Runs on as many ranks as were started.
train::TrainResult train_on_ranks(const ReadRun& read, int64_t threads) {
  prepare_reports();
  // Before the configuration is read: all ranks must learn of its errors.
  const auto world = comm::world_of_launcher();
  if (world->size() > 1) return train_as_process(*world, read, threads);
  const train::RunOptions run = read();
  check_ranks(threads, 1, run.config.parallel.backend);
  return train::train_on_threads(run, static_cast<int>(threads), stop_requested);
}

// Prints where the results are, and how to continue.
void report_end(const train::TrainResult& result, const std::string& folder) {
  switch (result.end) {
    case train::RunEnd::kFinished:
      log_info("the model is in {0}/final; curves and samples are in {0}/index.html", folder);
      break;
    case train::RunEnd::kInterrupted:
      if (result.step > 0)
        log_info("stopped: step {} is saved in {}/checkpoints; run the same command again to resume",
                 result.step, folder);
      break;
    case train::RunEnd::kTimeLimit:
      log_info("time limit: step {} is saved in {}/checkpoints; run the same command again to resume",
               result.step, folder);
      break;
    case train::RunEnd::kDryRun:
      break;
  }
}

}  // namespace

int run_training(const TrainOptions& options) {
  std::string folder;
  const auto read = [&] {
    train::RunOptions run;
    run.config = read_command_config(options.inputs, options.sets);
    folder = run.config.run.folder;
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
    return run;
  };
  const train::TrainResult result = [&]() -> train::TrainResult {
    try {
      return train_on_ranks(read, options.ranks);
    } catch (const Interrupted&) {
      log_info("stopped before the first step; run the same command again to start over");
      return {train::RunEnd::kInterrupted, 0, 0};
    }
  }();
  if (result.rank == 0) report_end(result, folder);
  if (options.json && result.rank == 0) {
    static constexpr const char* kEnds[] = {"finished", "interrupted", "time_limit", "dry_run"};
    nlohmann::ordered_json json{{"end", kEnds[static_cast<size_t>(result.end)]},
                                {"step", result.step},
                                {"loss", result.loss},
                                {"folder", folder}};
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
  Verb verb = root.verb("train", "Train a model; the same command resumes a stopped run",
                        "strata train RUN.toml --set training.steps=2000");
  verb.option("RUN.toml", options->inputs,
              "A configuration, or the folder of a run to resume; or texts, or folders of data builds, to "
              "train on without one")
      .required();
  verb.sets(options->sets).suggest(configuration_keys());
  verb.option(
          "--resume", *resume,
          "auto: resume the run in its folder, if any; never: reject a folder that contains a run; DIR: resume "
          "from that checkpoint")
      .type_name("auto|never|DIR")
      .suggest({"auto", "never"});
  verb.option("--ranks", options->ranks,
              "Ranks that share the work as threads of this process; processes are started with mpirun -n N")
      .positive()
      .type_name("N");
  verb.flag("--accept-changes", options->accept_changes,
            "Resume although keys have changed that affect training");
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
