// Checkpoints of a run: folders step-00000200 under RUN/checkpoints, each a complete Hugging Face directory
// with optimizer.safetensors, state.json and, written last, manifest.json.
//
// A save changes nothing in the folder until the new checkpoint is complete and durable. It is written under
// a temporary name, synced and renamed; then `latest` is rewritten, and only then are old checkpoints pruned.
// A save that fails leaves the folder unchanged; one that is killed leaves a temporary folder, which the next
// save removes.
//
// Errors: WorldError for the disk, DataError for damaged content, ConfigError for a missing path, a second
// process that saves into the same folder, or a checkpoint of a newer program.
#pragma once

#include <functional>
#include <limits>
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
  std::vector<TensorView> optimizer;  // "m/<HF name>", …, stored in the dtype of memory
  std::string state_json;  // step, tokens, schedule, data cursor, random state: all that a resumed run needs
  Health health;
  std::string program;  // name and version of the program
  RetentionPolicy retention;
};

struct SavedCheckpoint {
  Path path;
  uint64_t bytes = 0;
  std::vector<Path> pruned;
  std::vector<std::string> warnings;  // the checkpoint is complete, but updating `latest` or pruning failed
};

// Saves into FOLDER, usually RUN/checkpoints. Replaces a checkpoint of the same step.
//
// All ranks call it together, each with views of its shards, in the same order (weights.h). They write the
// tensor files in parallel; once these are durable, rank 0 writes all other files. An error on one rank is
// thrown on all, with the rank's number. Only rank 0 gets bytes, pruned and warnings; it returns after the
// others, which do not wait for the pruning. `all_read` is called when the content's storages have been read
// for the last time, unless an error comes first.
SavedCheckpoint save_checkpoint(FileSystem& files, const Path& folder, const CheckpointContent& content,
                                Together ranks = {}, const std::function<void()>& all_read = {});

struct SkippedCheckpoint {
  Path path;
  std::string reason;
};

struct FoundCheckpoint {
  Path path;
  Manifest manifest;
  std::vector<SkippedCheckpoint> skipped;  // newer ones that cannot be used, with the reasons
};

struct FindOptions {
  bool verify = false;  // read everything and compare checksums; otherwise loading does
  bool healthy = true;  // skip checkpoints that were saved with a NaN
  int64_t at_most = std::numeric_limits<int64_t>::max();  // the latest step
};

// The newest usable checkpoint; nothing if the folder has none up to `at_most`. If it has some but none is
// usable: DataError with every reason, because a run must not start from scratch next to them.
std::optional<FoundCheckpoint> find_checkpoint(const Path& folder, const FindOptions& options = {});

struct LoadedCheckpoint {
  Path path;
  Manifest manifest;
  std::string state_json;
  std::vector<SkippedCheckpoint> skipped;
};

// Fills all views and checks the checksum of everything that it reads. The views must match the tensors of
// the files one to one; with an empty `optimizer` the optimizer's file is not read. After an error the
// contents of the views are undefined.
// All ranks call it together. Each reads and checks the chunks that overlap its shards; damage that one rank
// finds is an error on all.
LoadedCheckpoint load_checkpoint(const Path& checkpoint, std::span<const MutableTensorView> weights,
                                 std::span<const MutableTensorView> optimizer = {}, Together ranks = {});

// Finds and loads in one call: also skips a checkpoint that turns out to be damaged while it is read.
std::optional<LoadedCheckpoint> load_newest_checkpoint(const Path& folder,
                                                       std::span<const MutableTensorView> weights,
                                                       std::span<const MutableTensorView> optimizer = {},
                                                       const FindOptions& options = {}, Together ranks = {});

// The functions below accept checkpoints and plain Hugging Face directories.

struct Problem {
  std::string file;
  std::string what;
};
// Reads everything: checks sizes and checksums against the manifest or checksums.json, if there is one, and
// the structure; looks for NaN and infinities in the weights.
std::vector<Problem> verify_checkpoint(const Path& path);
// Whether there are checksums to verify against. Without them a changed byte that is still a valid number is
// not detected.
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
  double max_abs = 0;     // largest difference between two values, whatever their dtypes; infinite for a NaN
  int64_t differing = 0;  // elements
  std::string detail;     // shapes or dtypes, if they differ
};
std::vector<TensorDiff> diff_checkpoints(const Path& first, const Path& second);

// The model folder that a user's argument refers to: a Hugging Face directory, a checkpoint,
// RUN/checkpoints/latest (the checkpoint that it names), a run folder or RUN@latest (the newest), or RUN@best
// (by the run's best_metric). ConfigError if there is none, DataError if the newest is damaged.
Path resolve_model(const std::string& text);

}  // namespace strata::checkpoint
