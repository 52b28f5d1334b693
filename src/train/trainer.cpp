#include "train/trainer.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/pin.h"
#include "base/signals.h"
#include "checkpoint/shared_folder.h"
#include "comm/exchange.h"
#include "config/objective.h"
#include "config/precision.h"
#include "config/steerable.h"
#include "hardware/device_spec.h"
#include "program/explain.h"
#include "program/memory_report.h"
#include "program/pipeline.h"
#include "train/control.h"
#include "train/copy_plan.h"
#include "train/disk_need.h"
#include "train/evaluations.h"
#include "train/launched.h"
#include "train/memory_folder.h"
#include "train/same_start.h"
#include "train/shared_run.h"
#include "train/snapshots.h"
#include "train/training_loop.h"

namespace strata::training {
namespace {

std::string machine_line(const hardware::DeviceSpec& device) {
  return fmt::format("{}, {} threads, {}", device.name, device.threads, device.isa.str());
}

// The configuration that the run in this folder was started with, if this start must keep it.
std::optional<config::RunConfig> binding_config(const std::string& resume, const config::RunConfig& asked,
                                                bool accept_changes, const RunStore& store) {
  if (resume == "never" && store.holds_run()) {
    throw ConfigError(
        "[{}] already holds a run, and --resume never was given; choose another run.folder or remove this one",
        store.folder().string());
  }
  auto stored = store.stored_config();
  if (!stored) return std::nullopt;
  // Runs of earlier versions had one rank and stored degrees for one.
  stored = config::with_degrees(*stored, config::mesh_of(*stored).ranks());
  // Settings changed during the run are in its journal.
  const auto journal = store.journal();
  const auto changes = config::compare_for_resume(
      *stored, journal ? config::keep_steered(asked, *stored, journal->set_keys()) : asked);
  // Before the first checkpoint a run may change any setting.
  const bool free = std::all_of(changes.begin(), changes.end(), [](const config::Change& c) {
    return c.resume == config::ResumeClass::kFree;
  });
  if (!free && !store.holds_checkpoints()) return std::nullopt;
  config::require_resumable(changes, accept_changes);
  return stored;
}

// All ranks, for exchanges before the layout is known.
std::unique_ptr<comm::Communicator> group_of_start(comm::World& world) {
  std::vector<int> everybody(static_cast<size_t>(world.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  return world.group(everybody, "start");
}

void describe_ranks(const config::RunConfig& config, const comm::World& world) {
  log_info("ranks: {} ({} on this host, {} threads each, {}), {}", world.size(), world.local_size(),
           *config.device.threads, world.engine(), config::layout_in_words(config));
  const int processors = available_processors();
  if (world.engine() == "local" && world.size() > processors)
    log_warning("{} ranks share {} processors and wait for each other", world.size(), processors);
}

void describe(const config::RunConfig& config, const models::ModelConfig& model,
              const program::ProgramSet& set, const config::RunData& data,
              const std::vector<config::SourcePlan>& plan, int64_t total_steps) {
  for (const std::string& leak : models::routing_leaks(model))
    log_warning("model.allow_leaking_routing: tokens see the tokens that they predict: {}", leak);
  log_info("model: {} ({}), {} layers of width {}", models::parameters_in_words(model), model.family->name,
           models::layers_of(model), model.hidden_size);
  if (model.experts.route.force_balanced)
    log_warning("moe.force_balanced: experts are chosen without the router; use it only for measurements");
  log_info(
      "data: {} training tokens, {} per step, {} steps: {}",
      human_count(static_cast<double>(data.train_tokens)),
      human_count(static_cast<double>(config.training.global_batch_size * config.training.sequence_length)),
      total_steps, config::to_string(plan));
  for (const std::string& warning : config::repetition_warnings(plan)) log_warning("{}", warning);
  if (const std::string ramp = config::ramps_in_words(config); !ramp.empty()) log_info("ramp: {}", ramp);
  log_info("program: {} instructions per micro-batch of {} x {}, {}, recompute {}, arena {}",
           set.programs[config::kTrainProgram].micro_batch_instructions(), *config.training.micro_batch_size,
           config.training.sequence_length, name_of(config::activation_dtype(config)),
           name_of(set.programs[config::kTrainProgram].recompute),
           human_bytes(static_cast<double>(set.arena_bytes)));
}

// A budget may allow more than the machine has.
void check_memory(const config::RecoveryTable& recovery, const program::ProgramSet& set, int local_ranks) {
  const int64_t there = holdable_memory() / local_ranks;
  const int64_t copies = has_snapshots(recovery, set) ? snapshot_bytes(recovery, set) : 0;
  const int64_t needed = set.arena_bytes + program::save_staging_bytes(set) + copies;
  if (recovery.in_memory == true && there > 0 && needed > there) {
    throw ConfigError(
        "[recovery.in_memory] {} snapshots take {} of memory: with the {} of the step only {} are free {}; set it "
        "to \"auto\", take snapshots less often (recovery.snapshot) or shorten recovery.detection_delay",
        snapshots_kept(recovery), human_bytes(static_cast<double>(copies)),
        human_bytes(static_cast<double>(needed - copies)), human_bytes(static_cast<double>(there)),
        where_memory_ends());
  }
  if (there == 0 || needed <= there) return;
  throw WorldError(
      "[memory] the run needs {}: only {} are free {}; lower memory.budget, or set it to \"auto\"",
      human_bytes(static_cast<double>(needed)), human_bytes(static_cast<double>(there)), where_memory_ends());
}

// Shows strata launch what this rank does. Nothing depends on it.
RankBoard show_rank(const Path& run, int rank, int attempt) {
  try {
    return RankBoard(open_memory_folder(run), rank, attempt);
  } catch (const ConfigError& error) {
    log_warning("{}; the ledger will lack what rank {} did", error.what(), rank);
    return {};
  }
}

// Runs `work` on the first rank before the others, which can then use its results.
template <typename Work>
void first_rank_first(comm::World& world, const Work& work) {
  if (world.rank() == 0) work();
  world.barrier();
  if (world.rank() != 0) work();
}

// Counts copies of the state from an earlier process as free memory: new ones replace them.
config::MachineShare share_without_copies(const config::RunConfig& config, const config::RankPlace& place,
                                          const Path& run) {
  config::MachineShare share = config::share_of_rank(config, place);
  if (config::kind_of(config, place.ranks) == device::Kind::kCpu)
    share.memory += memory_folder_bytes(run) / 10 * 9 / std::max(1, place.local_ranks);
  return share;
}

// The smallest share of its machine that any rank has.
config::MachineShare least_share(comm::Communicator& all, const config::MachineShare& mine) {
  const auto least = [&](int64_t value) {
    return static_cast<int64_t>(comm::min_over(all, static_cast<double>(value)));
  };
  return {
      .processors = least(mine.processors), .memory = least(mine.memory), .of = mine.of, .users = mine.users};
}

// This rank's coordinate on the pipeline axis.
int32_t stage_of(const config::RunConfig& config, const comm::World& world) {
  return config::mesh_of(config).coordinates(world.rank())[graph::Axis::kPipeline];
}

// The stages of this process's ranks: all stages if ranks are threads.
std::vector<int32_t> stages_to_compile(const config::RunConfig& config, const comm::World& world) {
  if (world.engine() != "local") return {stage_of(config, world)};
  std::vector<int32_t> all(static_cast<size_t>(std::max<int64_t>(1, config.parallel.pipeline)));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

TrainResult train_run(comm::World& world, const RunOptions& options, const std::function<bool()>& stop) {
  InjectedDisk disk(options.files != nullptr ? *options.files : posix_file_system());
  const bool injects = !options.config.debug.inject.empty();
  FileSystem& files = injects ? disk : disk.under();
  const config::RankPlace place{.ranks = world.size(), .local_ranks = world.local_size()};
  const bool is_first = world.rank() == 0;
  std::optional<LogSink> lines;
  if (options.observer.log)
    lines.emplace(is_first ? options.observer.log : [](LogLevel, std::string_view) {});
  const config::IssueHook hooks[] = {config::check_model};
  // Before any key is used: if the inputs of the ranks differ, none of them is known to be right.
  const std::unique_ptr<comm::Communicator> all = group_of_start(world);
  const int64_t first_process = require_same_start(world, *all, options);
  const config::IssueHook written[] = {config::check_model, config::check_idle_keys};
  config::require_valid(options.config, written);
  const config::RunConfig asked = config::with_degrees(options.config, place.ranks);
  if (is_first) {
    if (config::computes_in_codes(asked)) {
      log_info("precision: {}, computed on the processor for studies; not faster than bf16",
               config::precision_in_words(asked));
    }
    for (const config::Issue& warning : config::warnings(asked)) log_warning("{}", warning.to_string());
  }
  world.configure(config::world_options(asked));
  std::optional<RunStore> opened;
  first_rank_first(world, [&] {
    opened.emplace(files, asked.run.folder, is_first ? RunStore::Role::kOwner : RunStore::Role::kReader);
  });
  RunStore& store = *opened;
  const std::optional<int> attempt =
      launch_attempt([](const char* name) -> const char* { return std::getenv(name); });
  RankBoard board;
  if (attempt && !options.dry_run) board = show_rank(store.folder(), world.rank(), *attempt);
  if (is_first && !options.dry_run) ControlFolder::begin(files, store.folder());
  std::optional<LogFile> log;
  if (world.size() > 1) {
    if (world.local_size() < world.size()) checkpoint::check_shared_folder(*all, files, store.folder());
    if (is_first) files.create_directories(store.folder() / "logs");
    world.barrier();
    log.emplace(store.folder() / "logs" / fmt::format("rank-{:05}.log", world.rank()), is_first);
  }
  const std::optional<config::RunConfig> stored =
      binding_config(options.resume, asked, options.accept_changes, store);
  config::PlanOptions planned{.files = files,
                              .place = place,
                              .share = least_share(*all, share_without_copies(asked, place, store.folder())),
                              .stored = stored,
                              .check = [&stop] {
                                if (stop()) throw Interrupted();
                              }};
  const config::RunConfig begun = config::begun(asked, planned);
  config::require_valid(begun, hooks);
  world.configure(config::world_options(begun));
  set_compute_threads(static_cast<int>(*begun.device.threads));
  const PinnedThreads pinned(begun.device.pin && place.local_ranks == 1);
  flush_denormals();
  SharedRun own;
  SharedRun& shared = options.shared != nullptr ? *options.shared : own;
  first_rank_first(world, [&] {
    if (shared.plan) return;  // another rank of this process made it
    planned.stored_tokenizer = store.stored_tokenizer().value_or(Path());
    planned.places = stages_to_compile(begun, world);
    shared.plan = config::make_plan(options.config, planned);
  });
  const config::RunPlan& plan = *shared.plan;
  const config::RunConfig& chosen = plan.config;
  std::shared_ptr<const program::ProgramSet> set = plan.set(stage_of(chosen, world));
  check_memory(chosen.recovery, *set, place.local_ranks);
  if (is_first) check_prompts(chosen, plan.tokens(), *set);
  const program::Ranks ranks(world, set->options);
  require_same_work(world, ranks.all(), chosen, plan.data, *set);
  const bool is_launched = launch_attempt([](const char* name) { return std::getenv(name); }).has_value();
  const CopyPlan copies =
      plan_copies(chosen.recovery, is_launched, *set, world, ranks.all(), disk.under(), store.folder());
  std::vector<config::Change> changes;
  if (stored) changes = config::changes_of(*stored, plan);

  TrainingLoop loop(
      {.config = chosen, .model = plan.model, .tokenizer = plan.tokens(), .data = plan.data, .ranks = ranks},
      {.store = store,
       .files = files,
       .stop = stop,
       .observer = options.observer,
       .changes = changes,
       .disk = injects ? &disk : nullptr,
       .board = std::move(board),
       .copies = copies,
       .may_use_copies = stored.has_value(),
       .likely = store.likely_state(options.resume)});
  if (is_first) {
    for (const config::Change& change : changes) {
      log_info("changed: {} = {} → {}", change.key, change.before.empty() ? "unset" : change.before,
               change.after.empty() ? "unset" : change.after);
    }
    for (const config::Issue& idle : config::idle_keys(chosen)) log_warning("{}", idle.to_string());
    describe(chosen, plan.model, *set, plan.data, loop.plan(), loop.total_steps());
    if (world.size() > 1) describe_ranks(chosen, world);
    check_disk(files, store.folder(), chosen, plan.model, *set, loop.total_steps());
    if (const optim::ScheduleConfig curve = config::schedule_of(chosen); loop.total_steps() < curve.steps) {
      log_info(
          "the learning rate is {:.3g} at the run's last step: its schedule has {} steps (schedule.steps)",
          optim::learning_rate(curve, loop.total_steps()), curve.steps);
    }
  }
  if (options.dry_run) {
    if (options.resume != "auto" && options.resume != "never") named_checkpoint(options.resume);
    if (is_first) log_info("dry run: no errors found; nothing was trained");
    return {RunEnd::kDryRun, 0, 0, program::fingerprint(*set)};
  }
  const std::string machine = machine_line(set->options.target.spec);
  const int64_t done = loop.start(std::move(set), options.resume, options.accept_changes);
  // Only now: a refused start must change nothing.
  if (is_first) store.store_config(chosen, machine);
  if (done >= loop.total_steps()) {
    loop.complete();
    if (is_first) {
      log_info("{} has finished its {} steps; to extend it: {} (schedule.steps stays {})",
               store.folder().string(), done, loop.extension(), *chosen.schedule.steps);
    }
    return {RunEnd::kFinished, done, 0};
  }
  // The second rank reports in place of a first one that is gone.
  // strata launch restarts the run by itself.
  if (!attempt && (is_first || (world.rank() == 1 && first_process != 0)))
    loop.announce_stops(is_first ? 0 : first_process);
  loop.on_failure(options.failed);
  save_before_stopping();
  if (done > 0 && is_first) log_info("resumed after step {}", done);
  return loop.run();
}

TrainResult train_on_threads(const RunOptions& options, int ranks, const std::function<bool()>& stop) {
  TrainResult result;
  SharedRun shared;
  comm::run_local_ranks(ranks, [&](comm::World& world) {
    RunOptions mine = options;
    mine.shared = &shared;
    TrainResult made = train_run(world, mine, stop);
    if (world.rank() == 0) result = std::move(made);
  });
  return result;
}

}  // namespace strata::training
