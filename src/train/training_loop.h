// The loop of a run, from the first step to the last. It combines the components of a step, each in its own
// file: position, step, evaluations, saves, stopping and reports.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/data_plan.h"
#include "program/executor.h"
#include "train/copies.h"
#include "train/injected_disk.h"
#include "train/journal.h"
#include "train/noise_ramp.h"
#include "train/noise_scale.h"
#include "train/rank_board.h"
#include "train/recovery.h"
#include "train/reporter.h"
#include "train/run_inputs.h"
#include "train/run_position.h"
#include "train/run_store.h"
#include "train/saves.h"
#include "train/snapshots.h"
#include "train/steering.h"
#include "train/step_runner.h"
#include "train/stopping.h"
#include "train/trainer.h"

namespace strata::training {

class Injector;

struct LoopOptions {
  RunStore& store;
  FileSystem& files;
  const std::function<bool()>& stop;  // called after every step
  const RunObserver& observer;
  std::vector<config::Change> changes;  // made to the configuration by a resume
  // Set if debug.inject has faults: `files` and the store's too.
  InjectedDisk* disk = nullptr;
  RankBoard board = {};  // shows what this rank does
  CopyPlan copies = {};
  // Whether copies of the state that are in memory are of a run with the same settings.
  bool may_use_copies = false;
  // The state that start() is expected to find; plan() uses it before start().
  std::optional<TrainingState> likely;
};

// All ranks construct one and call its functions at the same points, each on one thread. The objects that the
// options and inputs refer to must outlive it.
class TrainingLoop {
 public:
  TrainingLoop(const RunInputs& inputs, LoopOptions options);

  int64_t total_steps() const { return position_.total_steps(); }
  // The share of each source in the whole run.
  std::vector<config::SourcePlan> plan() const { return position_.plan(); }
  // The settings that extend a run that has completed all its steps.
  std::string extension() const { return position_.extension(); }

  // Fills the arena; returns the number of completed steps. Throws as resume_run() does.
  int64_t start(std::shared_ptr<const program::ProgramSet> set, const std::string& resume,
                bool accept_changes);

  // Makes this process print the last saved step if a signal ends it by force: always, or only if process
  // `stands_in_for` is gone. Without this call it prints nothing.
  void announce_stops(int64_t stands_in_for) { stop_text_.start(stands_in_for); }

  // Called with an error of run() before the memory is freed that other ranks read and write.
  void on_failure(std::function<void(const std::exception&)> failed) { failed_ = std::move(failed); }

  // Runs the remaining steps, at least one. DataError and WorldError; DivergedError for a loss or gradient
  // that is not finite and for a run without hope of recovery.
  TrainResult run();

  // Finishes a run that was killed between its last save and its end.
  void complete();

 private:
  std::unique_ptr<Reporter> make_reporter();
  // For errors: the step from which the same command goes on.
  std::string where_it_resumes() const;
  RunEnd loop(Reporter& reporter);
  // Takes the averages of the noise scale, and the batch that follows it, from a state of the run.
  void take_noise(const TrainingState& state);
  // Lets the batch follow the newest step's noise scale.
  void follow_noise();
  // Adds the actions of the rules in the newest step to the journal and reports them; goes back if they demand it. Returns
  // whether it has gone back. Throws DivergedError if the run must end.
  bool intervene(const Judgement& judged, Saves& saves, Reporter& reporter);
  // For all ranks together: the first value of the newest step that is not finite, as the end of a sentence.
  // Its micro-batches run again.
  std::string overflow_text(StepRunner& steps) const;
  void go_back(const Judgement& judged, Saves& saves, Reporter& reporter);
  // Restores the newest state of at most this step; nullopt: there is none.
  std::optional<TrainingState> restore(int64_t at_most, Reporter& reporter);
  void record_intervention(const Intervention& one, Reporter& reporter);
  void write_journal();
  [[noreturn]] void give_up(const std::string& why, const std::string& advice, Saves& saves,
                            Reporter& reporter);
  void take_snapshot();
  void take_copy(Reporter& reporter);
  // Applies what requests ask for after the step just made.
  SteeringEffects steer(Steering& steering, bool ends, Reporter& reporter);
  void finish(Reporter& reporter, RunEnd end);
  // Removes the files that show in /dev/shm what ranks of this run do.
  void leave_memory();
  RunStore::Save save() const;

  config::RunConfig config_;  // strata set changes it; inputs_ refers to it
  RunInputs inputs_;
  LoopOptions options_;
  RunPosition position_;
  StopText stop_text_;
  std::unique_ptr<program::Executor> executor_;
  bool from_elsewhere_ = false;  // started from a checkpoint that the user named
  std::function<void(const std::exception&)> failed_;
  Recovery recovery_;
  Journal journal_;
  std::optional<Snapshots> snapshots_;
  std::optional<Copies> copies_;
  bool from_copies_ = false;             // started from copies
  NoiseState noise_;                     // after the newest step
  std::optional<NoiseRamp> noise_ramp_;  // where the batch follows the noise scale
  Injector* injector_ = nullptr;         // while loop() runs; nullptr: no faults are injected
  StepRecord record_;                    // of the newest step
  EvaluationResults evaluations_;        // the newest results
};

}  // namespace strata::training
