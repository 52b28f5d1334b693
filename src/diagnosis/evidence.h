// Everything that a run has left in its folder, read for a diagnosis. All files are optional, and damaged
// lines and files are skipped and listed: reading never fails because a run is sick.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/manifest.h"
#include "config/run_config.h"
#include "observe/expert_log.h"
#include "observe/ledger.h"
#include "observe/metrics.h"
#include "observe/rank_log.h"

namespace strata::diagnosis {

// Properties of a step that the columns of a MetricsTable do not hold.
struct StepMarks {
  bool skipped = false;     // no update was made
  bool has_targets = true;  // the step has a loss, or should have one
  bool is_finite = true;    // loss and gradient norm
};

// A step that a rollback or a restart undid: a line of metrics.discarded.jsonl.
struct UndoneStep {
  int64_t step = 0;
  double time = 0, seconds = 0;  // NaN: unknown
  bool is_finite = true;
};

// A tensor of layers.jsonl; NaN: not measured.
struct TensorFigures {
  int64_t layer = -1;  // -1: outside the layers
  std::string tensor;
  double grad_rms = 0, weight_rms = 0, update_ratio = 0, act_rms = 0, act_max = 0, zero_share = 0;
};
struct LayerSample {
  int64_t step = 0;
  std::vector<TensorFigures> tensors;
};

struct CheckpointFacts {
  Path path;
  int64_t step = 0;
  uint64_t bytes = 0;
  std::optional<checkpoint::Health> health;
  std::string damage;  // why it cannot be read; empty: intact, as far as names and sizes show
};

// A source of training tokens, as the newest checkpoint has it.
struct SourceProgress {
  std::string name;
  int64_t tokens = 0, epoch = 0;  // in the corpus; complete passes
};

struct DamagedFile {
  std::string file, problem;
};

struct Evidence {
  Path folder;
  double now = 0;  // Unix seconds
  std::optional<config::RunConfig> config;
  observe::MetricsTable metrics;  // surviving steps, and all events
  std::vector<StepMarks> marks;   // of metrics.steps()
  std::vector<UndoneStep> undone;
  std::vector<LayerSample> layers;  // oldest first, like the next two
  std::vector<observe::ExpertSample> experts;
  std::vector<observe::RankSample> ranks;
  std::vector<CheckpointFacts> checkpoints;  // newest first, at most 64
  std::vector<SourceProgress> sources;
  std::vector<observe::LedgerAttempt> attempts;  // of strata launch
  std::string last_error;                        // the last error that a rank logged; empty: none
  bool locked = false;                           // a process is using the folder
  std::optional<uint64_t> free_bytes;            // of the disk
  std::vector<DamagedFile> damaged;
};

// The steps of a metrics.discarded.jsonl; none if there is no such file.
std::vector<UndoneStep> read_undone(const Path& path);

// Whether a folder has any file that a run writes first.
bool is_run_folder(const Path& folder);

// `now`: Unix seconds.
Evidence read_evidence(const Path& folder, double now);

}  // namespace strata::diagnosis
