// Injects the faults of debug.inject into a run, each once, so that recovery can be tested.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/inject.h"
#include "data/samples/rows.h"
#include "program/executor.h"
#include "train/injected_disk.h"
#include "train/injected_marks.h"
#include "train/reporter.h"
#include "train/run_inputs.h"

namespace strata::training {

// Where a snapshot of this rank is damaged: byte `draw` % size of tensor `draw` >> 32 % tensors, bit `bit`.
struct FlipPlace {
  uint64_t draw = 0;
  int bit = 0;  // from 0 to 7
};

// All ranks construct one and call its functions at the same points, except after_save() on one thread: that
// of the loop. Every rank knows all faults; the one that a fault names acts. Before a fault acts for the first
// time, the first rank reports it and the acting rank records it, durably, in RUN/injected. Faults that change
// numbers act again, without a report, if a resumed run computes their step again, unless a rollback has
// undone that step; faults of the machine never do.
class Injector {
 public:
  // Refers to all of them. ConfigError for a phase that this run does not have.
  Injector(const RunInputs& inputs, program::Executor& executor, InjectedDisk& disk, const Path& run,
           Reporter& reporter);
  ~Injector();
  Injector(const Injector&) = delete;
  Injector& operator=(const Injector&) = delete;

  // The training program of the steps from now on.
  void use_program(size_t program) { program_ = program; }
  // Before anything of a step.
  void before_step(int64_t step);
  // The tokens of the step, which may be others than those of the batch. Valid until the next call.
  const data::HostBatch& tokens(int64_t step, const data::HostBatch& batch);
  // Around each action of the training program's schedule, and after the last one.
  void before_action(const program::Action& action);
  void after_action();
  void after_update();
  // Before a save after `step` begins; on the saving thread, once the checkpoint of `step` is complete.
  void before_save(int64_t step);
  void after_save(int64_t step);
  // Whether the snapshot after `step` is to be damaged on this rank, and where.
  std::optional<FlipPlace> flip_snapshot(int64_t step);
  // The same of the copy in memory.
  std::optional<FlipPlace> flip_copy(int64_t step);
  // A rollback has undone the steps after this one: what faults did there is no part of the run any more.
  void undo_after(int64_t step);

 private:
  class Watch;
  // A fault of this step that acts on this rank during the step's actions.
  struct Strike {
    config::Fault fault;
    bool done = false;
  };

  bool is_mine(const config::Fault& fault) const { return fault.rank == inputs_.ranks.world().rank(); }
  void consider(const config::Fault& fault, int64_t step);
  void fire(const config::Fault& fault, int64_t step);
  void wait_for_marks();
  void change_weights(const config::Fault& fault);
  void pack_weights();
  void set_disk();
  void act_before_step();
  // Finds where in the action a fault acts, and prepares it.
  void prepare(Strike& strike, const program::Action& action);
  void strike_machine(const config::Fault& fault);
  template <typename Due>
  std::vector<config::Fault> take_due(int64_t step, const Due& due);
  template <typename Due>
  std::optional<FlipPlace> take_flip(int64_t step, const Due& due);
  void check_gathers() const;

  RunInputs inputs_;
  program::Executor& executor_;
  InjectedDisk& disk_;
  Path run_;
  Reporter& reporter_;
  size_t program_ = config::kTrainProgram;
  config::InjectPlan plan_;
  InjectedMarks marks_;
  std::unique_ptr<Watch> watch_;
  std::set<std::string, std::less<>> fired_here_;  // entries
  std::vector<config::Fault> waiting_;             // for a save or a snapshot
  // Of the current step:
  int64_t step_ = 0;
  bool has_new_ = false;
  std::vector<config::Fault> active_;  // on all ranks
  std::vector<Strike> strikes_;
  data::HostBatch random_tokens_;
  std::mutex mutex_;               // guards the next line, for the saving thread
  std::vector<uint64_t> to_flip_;  // draws of bits of the next checkpoint
};

}  // namespace strata::training
