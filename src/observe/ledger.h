// A run's ledger.jsonl: one attempt of `strata launch` per line, written when the attempt has ended.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace strata::observe {

// How an attempt began to train.
enum class AttemptFrom { kStart, kCopies, kDisk };

struct LedgerAttempt {
  int64_t attempt = 0;  // from 1, also over several calls of strata launch
  int64_t ranks = 0;
  double began = 0, ended = 0;  // Unix seconds
  int exit = 0;                 // of the launcher: 128 + signal if a signal ended it
  // What failed first; none: unknown, or nothing failed.
  std::optional<int64_t> first_rank = {};
  std::string phase = {};       // what that rank was doing: "forward"; empty: unknown
  std::string collective = {};  // that it waited in, or that waited for it; empty: unknown
  // none: it did not begin to train.
  std::optional<AttemptFrom> from = {};
  std::optional<int64_t> from_step = {}, to_step = {};  // completed steps at its beginning and at its end
  double productive_s = 0;                              // in steps that survived to its end
  // From the last sign of life of the attempt before, which failed, to the end of this one's first step; none: no failure
  // before, or no step.
  std::optional<double> recovery_s = {};
  int64_t lost_steps = 0;                  // that were made before, and undone when it began
  double lost_s = 0;                       // in those steps
  std::vector<std::string> settings = {};  // that the launch added to run on fewer ranks
  std::optional<double> run_began = {};    // time of the run's first event, which identifies the run

  // The run ended or was stopped with a save: 0, 75, 130, 143.
  bool ended_cleanly() const;
};

std::string ledger_line(const LedgerAttempt& attempt);  // with a newline
// Complete lines that are attempts, in order; the number of other lines goes to `others`.
std::vector<LedgerAttempt> read_ledger(const Path& path, int64_t* others = nullptr);

// Appends a line, durably; a torn last line is removed first.
void append_to_ledger(FileSystem& files, const Path& path, const LedgerAttempt& attempt);

// Mean time between failures of the ranks that ran under strata launch; none: no failure is recorded.
std::optional<double> mean_time_between_failures(std::span<const LedgerAttempt> attempts);

}  // namespace strata::observe
