// Compares the results of two runs of the same micro-batches row by row.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "evaluation/causality_probe.h"
#include "evaluation/token_rows.h"
#include "program/executor.h"

namespace strata::evaluation {

// Observes an executor while it runs one program: reads each instruction's results when it completes, before
// their memory is reused.
class RowObserver : public program::Executor::Observer {
 public:
  RowObserver(program::Executor& executor, size_t program, const ProgramRows& rows)
      : executor_(executor), program_(program), rows_(rows) {}

  void instruction(size_t program, const program::Action& action, size_t index, double begin,
                   double end) override;
  bool wants_results() const override { return true; }

 protected:
  virtual bool wants(const TokenRows& result, const program::Action& action) const = 0;
  virtual void see(const TokenRows& result, const program::Action& action,
                   const std::vector<std::byte>& bytes) = 0;
  // The position of row `row` of a result in the probe, and whether it may move.
  struct Place {
    int64_t sequence = 0, row = 0;
    bool may_move = false;
  };
  Place place_of(const Probe& probe, const TokenRows& result, const program::Action& action,
                 int64_t row) const;

  program::Executor& executor_;
  const size_t program_;

 private:
  const ProgramRows& rows_;
  std::vector<std::byte> bytes_;
};

// A row that moved but must not.
struct Movement {
  int64_t micro_batch = 0, sequence = 0, row = 0;
  double largest = 0;  // of the differences
};
using Movements = std::map<graph::ValueId, Movement>;  // the first row of each value

// Finds the values with rows that differ in any bit, by one hash per row of the first run.
class MovedRows final : public RowObserver {
 public:
  using RowObserver::RowObserver;
  void begin_second_run(const Probe& probe);
  Movements take() { return std::move(moved_); }

 protected:
  bool wants(const TokenRows&, const program::Action&) const override { return true; }
  void see(const TokenRows& result, const program::Action& action,
           const std::vector<std::byte>& bytes) override;

 private:
  std::vector<uint64_t> hashes_;  // in execution order, which is deterministic
  size_t next_ = 0;
  const Probe* probe_ = nullptr;  // of the second run
  Movements moved_;
};

// Measures how much the rows of some values differ, in the micro-batch in which a difference was found.
class MeasuredRows final : public RowObserver {
 public:
  MeasuredRows(program::Executor& executor, size_t program, const ProgramRows& rows, Movements wanted)
      : RowObserver(executor, program, rows), found_(std::move(wanted)) {}
  void begin_second_run(const Probe& probe) { probe_ = &probe; }
  Movements take() { return std::move(found_); }

 protected:
  bool wants(const TokenRows& result, const program::Action& action) const override;
  void see(const TokenRows& result, const program::Action& action,
           const std::vector<std::byte>& bytes) override;

 private:
  Movements found_;
  std::map<graph::ValueId, std::vector<std::byte>> kept_;
  const Probe* probe_ = nullptr;
};

}  // namespace strata::evaluation
