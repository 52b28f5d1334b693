// manifest.json, the last file that a save writes: a checkpoint exists if and only if its manifest does. It
// lists every file with its size and checksum, every tensor with a checksum of each chunk (tensor_io.h), and
// the state of health of the run.
// It includes its own checksum; later formats must keep that field and its computation (format_manifest). A
// model folder that is not a checkpoint has checksums.json instead, with only the list of files; other
// programs ignore both.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "checkpoint/tensor_io.h"

namespace strata::checkpoint {

inline constexpr int kFormatVersion = 2;     // of new files; format 1 had one checksum per tensor
inline constexpr int kUnderstoodFormat = 2;  // the highest "min_reader" that this program can read

// The state of a run when it was saved.
struct Health {
  std::optional<double> loss;  // absent: the step had no targets
  double grad_norm = 0;
  bool finite = true;                     // the run saw no NaN or infinity in weights, loss or gradients
  std::map<std::string, double> metrics;  // "eval/valid/loss", …
  bool good() const;                      // `finite`, with finite loss and gradient norm
};

// The checkpoints of a run that are kept (retention.h).
struct RetentionPolicy {
  int64_t keep_last = 3;   // the newest ones; 0: all
  int64_t keep_every = 0;  // the first one at or after each multiple of this many steps; 0: none
  int64_t keep_best = 0;   // the ones with the best values of best_metric
  std::string best_metric = "eval/valid/loss";
  bool keep_discarded = true;  // false: remove all that were set aside
};

struct Manifest {
  int64_t step = 0;
  std::string program;  // "strata 0.1.0"
  std::string created;  // UTC
  Health health;
  std::optional<RetentionPolicy> retention;  // of the run; absent in checkpoints of older programs
  std::vector<StoredFile> files;
  uint64_t bytes() const;  // of all files
  const StoredFile* find(std::string_view file) const;
};

std::string format_manifest(const Manifest& manifest);

// DataError for damage, ConfigError if a newer program wrote it.
Manifest parse_manifest(std::string_view text, const std::string& where);

// Formats and parses checksums.json. DataError for damage.
inline constexpr const char* kChecksumsFile = "checksums.json";
std::string format_checksums(std::span<const StoredFile> files);
std::vector<StoredFile> parse_checksums(std::string_view text, const std::string& where);

// The files that the manifest or checksums.json of a folder lists; nothing if it has neither. The files
// themselves are not read.
std::optional<std::vector<StoredFile>> stored_files(const Path& folder);

// Reads the manifest of a checkpoint and checks that all its files exist with the right sizes; DataError for
// the first that does not.
Manifest read_manifest(const Path& checkpoint);

}  // namespace strata::checkpoint
