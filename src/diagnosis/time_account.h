// How much of a run's time produced steps that survive, and the share that a formula predicts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "diagnosis/evidence.h"

namespace strata::diagnosis {

// All in seconds, from the times that the lines of both metrics files and of the ledger record. Starts and ends are those
// of the ledger if it has them: it knows attempts that died before their first line.
struct TimeAccount {
  double elapsed = 0;                   // from the first to the last line
  double productive = 0;                // in steps that survive
  double undone = 0;                    // in steps that were undone
  double paused = 0;                    // between a stop that was asked for and the next start
  double restarting = 0;                // between the last line before a failure and the first step after it
  int64_t failures = 0;                 // restarts of a run that neither finished nor stopped
  std::optional<double> save;           // for which a checkpoint holds up training, median
  std::optional<double> save_interval;  // median
  // From the ledger: mean time from a failure to the end of the first step after it, and mean time in the steps that a
  // restart from copies undoes. A restart from checkpoints undoes half of the interval between saves.
  std::optional<double> recovery, lost_from_copies;

  // productive / elapsed: everything else, also a pause, is lost.
  std::optional<double> goodput() const;
  // Effective training time ratio: productive / (elapsed - paused), because a paused run is not waiting for anything.
  std::optional<double> ettr() const;
  // RSC's formula (arXiv 2410.21680, planning::ettr_linear) with the measured cost and interval of saves, rate of failures
  // and time of restarts. Nothing before the first save.
  std::optional<double> ettr_predicted() const;
};

// The files of a run that contain its times.
struct TimeSources {
  const observe::MetricsTable& metrics;
  std::span<const UndoneStep> undone;
  std::span<const observe::LedgerAttempt> attempts;
};
TimeAccount time_account_of(const TimeSources& sources);
TimeAccount time_account_of(const Evidence& evidence);

}  // namespace strata::diagnosis
