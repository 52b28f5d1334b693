// Checkpoints of a run: folders step-00000200 under RUN/checkpoints, each a whole Hugging Face directory with
// optimizer.safetensors, state.json and, written last, manifest.json beside it.
//
// A save touches nothing that was there before the new checkpoint is whole and durable. It is made under a
// temporary name, synced, renamed; then `latest` is rewritten, and only then are old ones pruned. A save that
// fails leaves the folder as it found it; one that is killed leaves a temporary folder, which the next save
// removes.
//
// Errors: WorldError for the disk, DataError for what is damaged, ConfigError for a path that is not there, a
// second saver in the same folder, or a checkpoint of a newer program.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/manifest.h"
#include "checkpoint/retention.h"
#include "checkpoint/tensor_io.h"
#include "checkpoint/together.h"

namespace strata::checkpoint {

inline constexpr std::string_view kReplacedSuffix = ".replaced";

struct CheckpointContent {
  int64_t step = 0;
  ModelFiles model{.config_json = {}, .files = {}, .weights = {}, .dtype = DType::kF32};  // HF names
  std::vector<TensorView> optimizer;  // "m/<HF name>", …: stored in the dtype of memory
  std::string state_json;  // step, tokens, schedule, data cursor, random state: whatever resumes the run
  Health health;
  std::string program;  // name and version of the program
  RetentionPolicy retention;
};

struct SavedCheckpoint {
  Path path;
  uint64_t bytes = 0;
  std::vector<Path> pruned;
  std::vector<std::string> warnings;  // the checkpoint is whole, but `latest` or the pruning had trouble
};

// Saves under FOLDER, usually RUN/checkpoints. A checkpoint of the same step is replaced.
//
// Of several ranks all save together, each with views of what it holds, in the same order (weights.h): they
// write the tensor files at once, and rank 0 all else, once theirs is durable. What fails on one rank is
// thrown on all, with the rank named. Only rank 0 learns bytes, pruned and warnings, and returns after the
// others, which need not wait for the pruning. `all_read` is called once the content's storages are read no
// more, unless an error comes first.
SavedCheckpoint save_checkpoint(FileSystem& files, const Path& folder, const CheckpointContent& content,
                                Together ranks = {}, const std::function<void()>& all_read = {});

struct SkippedCheckpoint {
  Path path;
  std::string reason;
};

struct FoundCheckpoint {
  Path path;
  Manifest manifest;
  std::vector<SkippedCheckpoint> skipped;  // newer ones that cannot be used, and why
};

struct FindOptions {
  bool verify = false;  // read everything and compare checksums; otherwise that happens while loading
  bool healthy = true;  // skip checkpoints that were saved with a NaN
};

// The newest usable checkpoint. Nothing when the folder holds none at all; DataError that lists every reason
// when it holds some and none is usable: a run must not start afresh beside them.
std::optional<FoundCheckpoint> find_checkpoint(const Path& folder, const FindOptions& options = {});

struct LoadedCheckpoint {
  Path path;
  Manifest manifest;
  std::string state_json;
  std::vector<SkippedCheckpoint> skipped;
};

// Fills all views and checks every checksum of what is read. Every tensor of the files must be asked for, and
// the other way round; an empty `optimizer` leaves the optimizer's file alone. After an error the memory
// behind the views is undefined.
// Of several ranks all load together, each what its views hold, with the checksums of the chunks that it
// touches; what is damaged for one is so for all.
LoadedCheckpoint load_checkpoint(const Path& checkpoint, std::span<const MutableTensorView> weights,
                                 std::span<const MutableTensorView> optimizer = {}, Together ranks = {});

// find and load in one: a checkpoint that turns out damaged while it is read is skipped as well.
std::optional<LoadedCheckpoint> load_newest_checkpoint(const Path& folder,
                                                       std::span<const MutableTensorView> weights,
                                                       std::span<const MutableTensorView> optimizer = {},
                                                       const FindOptions& options = {}, Together ranks = {});

// The functions below take checkpoints and plain Hugging Face directories.

struct Fault {
  std::string file;
  std::string what;
};
// Reads everything: sizes and checksums against the manifest or checksums.json, where there is one;
// structure, NaN and infinities among the weights.
std::vector<Fault> verify_checkpoint(const Path& path);
// Whether there are checksums to verify against. Without any, a changed byte that is still a number goes
// unseen.
bool has_checksums(const Path& path);

struct TensorRow {
  std::string file, name, dtype;
  Shape shape;
  uint64_t bytes = 0;
};
struct CheckpointInfo {
  std::optional<Manifest> manifest;  // absent for a plain Hugging Face directory
  std::vector<TensorRow> tensors;    // of the model, then of the optimizer
  uint64_t bytes = 0;                // of all tensors
  int64_t parameters = 0;            // elements of the model's tensors
};
CheckpointInfo inspect_checkpoint(const Path& path);

enum class DiffKind { kEqual, kDifferent, kShape, kOnlyInFirst, kOnlyInSecond };
struct TensorDiff {
  std::string name;
  DiffKind kind = DiffKind::kEqual;
  double max_abs = 0;     // infinite where one side is NaN; over the values, whatever their dtypes
  int64_t differing = 0;  // elements
  std::string detail;     // shapes or dtypes where they differ
};
std::vector<TensorDiff> diff_checkpoints(const Path& first, const Path& second);

// The model folder that a user means: a Hugging Face directory, a checkpoint, RUN/checkpoints/latest (the one
// that it names), a run folder or RUN@latest (the newest), or RUN@best (by the run's own best_metric).
// ConfigError when there is none, DataError when the newest is damaged.
Path resolve_model(const std::string& text);

}  // namespace strata::checkpoint
