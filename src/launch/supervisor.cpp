#include "launch/supervisor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "config/layout.h"
#include "launch/account.h"
#include "launch/failure.h"
#include "launch/hosts.h"
#include "launch/launcher.h"
#include "launch/policy.h"
#include "launch/refit.h"
#include "observe/ledger.h"
#include "train/launched.h"
#include "train/memory_folder.h"

namespace strata::launch {
namespace {

constexpr double kProbeSeconds = 10;
constexpr double kLockSeconds = 120;  // more than the 90 s after which NFS frees the locks of a lost client

const char* variable(const char* name) {
  return std::getenv(name);
}

int64_t number_of_variable(const char* name, int64_t otherwise) {
  const char* const text = variable(name);
  const int64_t number = text != nullptr ? std::strtoll(text, nullptr, 10) : 0;
  return number > 0 ? number : otherwise;
}

// Seconds until the end of the Slurm job.
std::optional<double> scheduler_seconds_left() {
  const char* const end = variable("SLURM_JOB_END_TIME");
  if (end == nullptr) return std::nullopt;
  return std::strtod(end, nullptr) - unix_seconds();
}

std::vector<HostSlots> hosts_of(const LaunchOptions& options, const Launcher& launcher) {
  if (options.hosts) return parse_hosts(read_file(*options.hosts), options.hosts->string());
  if (options.spares == 0) return {};
  const char* const nodes = variable("SLURM_JOB_NODELIST");
  if (launcher.kind != LauncherKind::kSlurm || nodes == nullptr) {
    throw ConfigError(
        "[--spares] found {}, but no list of hosts; name them with --hosts FILE, the spares last",
        options.spares);
  }
  const CapturedEnd names =
      run_captured({"/bin/sh", "-c", "exec scontrol show hostnames \"$SLURM_JOB_NODELIST\""}, kProbeSeconds);
  if (names.code != 0) {
    throw WorldError("[launch] scontrol show hostnames {} failed: {}; name the hosts with --hosts FILE",
                     nodes, names.output);
  }
  const char* const tasks = variable("SLURM_TASKS_PER_NODE");
  return slurm_hosts(names.output, tasks != nullptr ? tasks : "");
}

// "rank 1 was killed in forward of step 17"
std::string failure_in_words(const observe::LedgerAttempt& attempt, int64_t step) {
  if (!attempt.first_rank) return "";
  std::string text = fmt::format("rank {} failed first", *attempt.first_rank);
  if (!attempt.phase.empty()) text += fmt::format(", in phase {} of step {}", attempt.phase, step);
  if (!attempt.collective.empty()) text += fmt::format(", collective \"{}\"", attempt.collective);
  return text + "; ";
}

// The run's folder in memory, held by one strata launch of this host at a time. Removed at the end if nothing is left in
// it.
class HeldMemory {
 public:
  explicit HeldMemory(const Path& run)
      : path_(training::open_memory_folder(run)), lock_(take_lock(path_, run)) {}
  ~HeldMemory() {
    std::error_code error;
    for (const Path& board : training::board_files(path_)) std::filesystem::remove(board, error);
    std::filesystem::remove(path_ / kLock, error);
    std::filesystem::remove(path_, error);  // not if copies are in it
  }
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;
  const Path& path() const { return path_; }

 private:
  static constexpr const char* kLock = "launch.lock";
  static FileLock take_lock(const Path& memory, const Path& run) {
    const Path path = memory / kLock;
    if (is_locked(path)) {
      throw ConfigError(
          "[{0}] another strata launch supervises this run; stop it (strata stop {0}), or choose another run.folder",
          run.string());
    }
    return FileLock(path);
  }

  const Path path_;
  const FileLock lock_;
};

class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, StopSignals& signals)
      : options_(options),
        signals_(signals),
        run_(options.config.run.folder),
        launcher_(find_launcher(search_)),
        hosts_(hosts_of(options, launcher_)),
        answers_(hosts_.size(), true),
        memory_(run_),
        policy_(launcher_.kind, options.max_restarts) {
    if (!hosts_.empty() && std::ssize(hosts_) <= options.spares) {
      throw ConfigError("[--spares] found {}, expected fewer than the {} hosts of the list", options.spares,
                        hosts_.size());
    }
    asked_ranks_ = choose_ranks();
    read_ledger();
  }

  int run() {
    if (!hosts_.empty()) {
      agent_ = remote_agent(launcher_, search_, kProbeSeconds);
      probe();
    }
    while (true) {
      place();
      const AttemptResult result = attempt();
      if (const std::optional<int> code = code_if_over(result)) return *code;
    }
  }

 private:
  int64_t choose_ranks() const {
    if (hosts_.empty()) {
      if (options_.ranks) return *options_.ranks;
      if (launcher_.kind == LauncherKind::kSlurm) return number_of_variable("SLURM_NTASKS", 1);
      return std::max<int64_t>(1, config::mesh_of(options_.config).ranks());
    }
    const std::vector<HostSlots> main(hosts_.begin(),
                                      hosts_.end() - static_cast<std::ptrdiff_t>(options_.spares));
    const int64_t ranks = options_.ranks.value_or(slots_of(main));
    if (ranks > slots_of(hosts_)) {
      throw ConfigError("[-n] found {}, expected at most {}: that many slots the hosts have", ranks,
                        slots_of(hosts_));
    }
    return ranks;
  }

  // Numbers attempts after those of earlier calls. A ledger of another run is set aside.
  void read_ledger() {
    const Path path = ledger();
    int64_t others = 0;
    std::vector<observe::LedgerAttempt> before = observe::read_ledger(path, &others);
    if (others > 0) log_warning("[{}] {} lines are not attempts; they are ignored", path.string(), others);
    const std::optional<double> began = run_began(run_ / "metrics.jsonl");
    const bool is_of_another =
        std::any_of(before.begin(), before.end(), [&](const observe::LedgerAttempt& one) {
          return one.run_began && (!began || std::abs(*one.run_began - *began) > 1e-3);
        });
    if (is_of_another) {
      const Path aside = run_ / "ledger.other.jsonl";
      posix_file_system().rename(path, aside);
      log_warning("[{}] is the ledger of another run: it was renamed to {}, and a new one begins",
                  path.string(), aside.filename().string());
      before.clear();
    }
    if (!before.empty()) last_attempt_ = before.back().attempt;
  }

  Path ledger() const { return run_ / "ledger.jsonl"; }

  void probe() { answers_ = probe_hosts(hosts_, agent_, kProbeSeconds); }

  std::string missing_hosts() const {
    std::string text;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (!answers_[i]) text += (text.empty() ? "" : ", ") + hosts_[i].name;
    }
    return text;
  }

  // Chooses hosts and layout of the next attempt.
  void place() {
    settings_.clear();
    ranks_ = asked_ranks_;
    if (hosts_.empty()) return;
    placed_ = place_ranks(hosts_, answers_, ranks_);
    const std::string missing = missing_hosts();
    if (const int64_t slots = slots_of(placed_); slots < ranks_) {
      if (last_attempt_ == 0) {
        throw ConfigError(
            "[{}] {} did not answer \"{} HOST true\" within {:.0f} s: expected {} slots on hosts that answer, found {}. "
            "Correct the list, or add spares",
            options_.hosts ? options_.hosts->string() : "hosts", missing, fmt::join(agent_, " "),
            kProbeSeconds, ranks_, slots);
      }
      use_fewer(slots, missing);
    } else if (!missing.empty()) {
      log_warning("launch: {} did not answer; ranks run on {}", missing, hosts_text());
    }
  }

  void use_fewer(int64_t slots, const std::string& missing) {
    for (int64_t ranks = slots; ranks > 0; --ranks) {
      const auto settings = refit(options_.config, ranks);
      if (!settings) continue;
      ranks_ = ranks;
      settings_ = *settings;
      placed_ = place_ranks(hosts_, answers_, ranks_);
      log_warning("launch: {} did not answer and no spare is left; {} instead of {} ranks{}", missing, ranks_,
                  asked_ranks_, settings_.empty() ? "" : fmt::format(", with {}", fmt::join(settings_, " ")));
      return;
    }
    throw WorldError(
        "[launch] {} did not answer: no layout of the run fits on the {} ranks of the other hosts. Repair a host, or "
        "add spares",
        missing, slots);
  }

  std::string hosts_text() const {
    std::string text;
    for (const HostSlots& host : placed_)
      text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", host.name, host.slots);
    return text;
  }

  AttemptResult attempt() {
    ++last_attempt_;
    Start start{.ranks = ranks_,
                .hosts = placed_,
                .attempt = last_attempt_,
                .is_root = ::geteuid() == 0,
                .ends_at_once = variable("OMPI_MCA_odls_base_sigkill_timeout") == nullptr,
                .of_rank = options_.of_rank};
    for (const std::string& setting : settings_)
      start.of_rank.insert(start.of_rank.end(), {"--set", setting});
    log_info("launch: attempt {}, {} rank{} with {}{}", last_attempt_, ranks_, ranks_ == 1 ? "" : "s",
             launcher_.program.filename().string(), placed_.empty() ? "" : " on " + hosts_text());
    saved_before_ = newest_saved_step(run_, memory_.path());
    const uint64_t discarded_before = size_of(run_ / "metrics.discarded.jsonl");
    RankWatch watch(memory_.path(), last_attempt_);
    AttemptResult result = run_attempt(start_command(launcher_, start),
                                       {fmt::format("{}={}", training::kLaunchAttempt, last_attempt_)},
                                       launcher_.kind != LauncherKind::kSlurm, watch, signals_);
    if (signals_.first() != 0) result.code = code_after_stop(result.code, signals_.first());
    if (result.left_processes) {
      log_warning("launch: processes of attempt {} cannot be killed; they wait in the kernel", last_attempt_);
    }
    record(result, watch, discarded_before);
    return result;
  }

  static uint64_t size_of(const Path& path) {
    std::error_code error;
    const uintmax_t size = std::filesystem::file_size(path, error);
    return error ? 0 : size;
  }

  static std::string text_after(const Path& path, uint64_t offset) {
    const uint64_t size = size_of(path);
    if (size <= offset) return "";
    std::string text(size - offset, '\0');
    ReadableFile(path).read_at(offset, text.data(), text.size());
    return text;
  }

  // Adds the attempt to the ledger. An attempt that was refused before the run had a folder is not recorded.
  void record(const AttemptResult& result, const RankWatch& watch, uint64_t discarded_before) {
    observe::LedgerAttempt line{.attempt = last_attempt_,
                                .ranks = ranks_,
                                .began = result.began,
                                .ended = result.ended,
                                .exit = result.code,
                                .settings = settings_};
    const std::string metrics = lines_since(run_ / "metrics.jsonl", result.began);
    const std::string discarded = text_after(run_ / "metrics.discarded.jsonl", discarded_before);
    add_account({.metrics = metrics, .discarded = discarded}, failed_before_, line);
    line.run_began = run_began(run_ / "metrics.jsonl");
    failed_before_.reset();
    failed_step_ = line.to_step.value_or(0);
    if (!line.ended_cleanly()) {
      name_first(result, watch, line);
      failed_before_ = FailedBefore{.last_sign = last_sign(result, watch, metrics)};
    }
    last_line_ = line;
    std::error_code error;
    if (!std::filesystem::is_directory(run_, error)) return;
    try {
      observe::append_to_ledger(posix_file_system(), ledger(), line);
    } catch (const WorldError& problem) {
      log_warning("{}; the ledger lacks attempt {}", problem.what(), last_attempt_);
    }
  }

  // A rank that was killed worked until it was seen ending; others may have hung before they ended.
  double last_sign(const AttemptResult& result, const RankWatch& watch, std::string_view metrics) const {
    double last = watch.last_change().value_or(result.began);
    if (const auto time = last_line_time(metrics, result.began)) last = std::max(last, *time);
    const auto& end = watch.first_end();
    if (end && kind_of_end(result.code, launcher_.kind) == EndKind::kCrash) last = std::max(last, end->time);
    return last;
  }

  void name_first(const AttemptResult& result, const RankWatch& watch, observe::LedgerAttempt& line) {
    const FailureText text = failure_in(result.output_end);
    line.collective = text.collective;
    const auto& end = watch.first_end();
    // Ranks of this host are seen ending, which is more reliable than texts unless the others follow within milliseconds.
    const bool are_all_here = watch.ranks() == ranks_;
    line.first_rank = text.missing_rank;
    if (!line.first_rank && end && are_all_here && end->is_sure) line.first_rank = end->rank;
    if (!line.first_rank) line.first_rank = text.first_rank();
    if (!line.first_rank && end) line.first_rank = end->rank;
    if (!line.first_rank) return;
    if (const auto seen = watch.last_seen(*line.first_rank)) {
      line.phase = training::name_of(seen->phase);
      failed_step_ = seen->step;
    } else if (text.missing_rank) {
      line.phase = phase_of_action(text.doing);
    }
  }

  // The exit code if this was the last attempt; otherwise waits until the next one may begin.
  std::optional<int> code_if_over(const AttemptResult& result) {
    AttemptEnd end{.code = result.code,
                   .made_progress = newest_saved_step(run_, memory_.path()) > saved_before_,
                   .was_asked_to_stop = signals_.first() != 0,
                   .seconds_left = scheduler_seconds_left()};
    const EndKind kind = kind_of_end(result.code, launcher_.kind);
    if (!hosts_.empty() && !end.was_asked_to_stop && kind != EndKind::kDone && kind != EndKind::kUser) {
      probe();
      for (const HostSlots& host : placed_) end.lost_host = end.lost_host || !answers(host.name);
    }
    const Decision decision = policy_.after(end);
    const std::string what =
        result.code == 0
            ? std::string()
            : fmt::format("launch: attempt {} ended with code {}: {}{}", last_attempt_, result.code,
                          failure_in_words(last_line_, failed_step_), decision.reason);
    if (!decision.restart) {
      if (!what.empty() && !end.was_asked_to_stop) log_warning("{}; it is not restarted", what);
      return clean_up(result.code);
    }
    log_warning("{}; restarting{}", what,
                decision.delay > 0 ? fmt::format(" in {:.0f} s", decision.delay) : "");
    if (signals_.wait(decision.delay) || !wait_for_lock()) {
      signals_.take();
      return clean_up(stopped_between());
    }
    return std::nullopt;
  }

  // A rank of a host that was cut off holds the run's folder until it notices, or until the file server forgets it. False: a
  // signal came first.
  bool wait_for_lock() {
    const Path lock = run_ / ".lock";
    if (!is_locked(lock)) return true;
    log_warning("launch: a rank of attempt {} still uses {}; waiting up to {:.0f} s", last_attempt_,
                run_.string(), kLockSeconds);
    for (const double begin = monotonic_seconds();
         is_locked(lock) && monotonic_seconds() < begin + kLockSeconds;) {
      if (signals_.wait(0.2)) return false;
    }
    return true;
  }

  // A signal came while no ranks ran: the last save is intact.
  int stopped_between() const { return code_after_stop(kTimeLimitExitCode, signals_.first()); }

  bool answers(const std::string& name) const {
    const auto at =
        std::find_if(hosts_.begin(), hosts_.end(), [&](const HostSlots& one) { return one.name == name; });
    return at == hosts_.end() || answers_[static_cast<size_t>(at - hosts_.begin())];
  }

  // Copies of the state stay for the next start unless the run has finished.
  int clean_up(int code) const {
    if (code == 0) training::remove_memory_folder(run_);
    return code;
  }

  const LaunchOptions& options_;
  StopSignals& signals_;
  const LauncherSearch search_ = search_of_this_machine();
  const Path run_;
  const Launcher launcher_;
  const std::vector<HostSlots> hosts_;  // empty: only this one
  std::vector<bool> answers_;
  const HeldMemory memory_;
  std::vector<std::string> agent_;
  RestartPolicy policy_;
  int64_t asked_ranks_ = 1;
  int64_t last_attempt_ = 0;
  // Of the next or current attempt:
  int64_t ranks_ = 1;
  std::vector<HostSlots> placed_;
  std::vector<std::string> settings_;
  int64_t saved_before_ = -1;  // the newest saved step
  // Of the last one:
  std::optional<FailedBefore> failed_before_;
  observe::LedgerAttempt last_line_;
  int64_t failed_step_ = 0;
};

}  // namespace

int launch_run(const LaunchOptions& options, StopSignals& signals) {
  const Path lock = Path(options.config.run.folder) / ".lock";
  // Names the process that holds it.
  if (is_locked(lock)) FileLock{lock};
  return Supervisor(options, signals).run();
}

}  // namespace strata::launch
