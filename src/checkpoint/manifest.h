// manifest.json, the last file of a checkpoint to be written: a checkpoint exists exactly when its manifest
// does. It names every file with its size and checksum, every tensor with one of each of its chunks
// (tensor_io.h), and how the run was doing.
// It carries a checksum of itself; later formats must keep that field and how it is made (see
// format_manifest). A model folder that is no checkpoint has checksums.json instead, the same of its files
// alone; other programs pass over both.
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

inline constexpr int kFormatVersion = 2;     // of what is written; 1 had one checksum a tensor
inline constexpr int kUnderstoodFormat = 2;  // the highest "min_reader" that this program can read

// How the run was doing when it was saved.
struct Health {
  std::optional<double> loss;  // nothing: its step had no target
  double grad_norm = 0;
  bool finite = true;  // no NaN or infinity in weights, loss or gradients, as the run saw it
  std::map<std::string, double> metrics;  // "eval/valid/loss", …
  bool good() const;                      // finite, and so are loss and gradient norm
};

// Which checkpoints of a run stay (retention.h).
struct RetentionPolicy {
  int64_t keep_last = 3;   // newest ones; 0: all
  int64_t keep_every = 0;  // and the first one at or behind each multiple of this step; 0: none
  int64_t keep_best = 0;   // and those with the best values of best_metric
  std::string best_metric = "eval/valid/loss";
  bool keep_discarded = true;  // false: of those set aside none
};

struct Manifest {
  int64_t step = 0;
  std::string program;  // "strata 0.1.0"
  std::string created;  // UTC
  Health health;
  std::optional<RetentionPolicy> retention;  // of the run that saved it; older programs did not say
  std::vector<StoredFile> files;
  uint64_t bytes() const;  // of all files
  const StoredFile* find(std::string_view file) const;
};

std::string format_manifest(const Manifest& manifest);

// DataError for anything damaged, ConfigError when a newer program wrote it.
Manifest parse_manifest(std::string_view text, const std::string& where);

// checksums.json of these files, and back. DataError for anything damaged.
inline constexpr const char* kChecksumsFile = "checksums.json";
std::string format_checksums(std::span<const StoredFile> files);
std::vector<StoredFile> parse_checksums(std::string_view text, const std::string& where);

// The files of a folder as they were written, by its manifest or its checksums.json; nothing where it has
// neither. Only the lists are read.
std::optional<std::vector<StoredFile>> stored_files(const Path& folder);

// The manifest of a checkpoint whose files are all there with the right sizes; DataError for the first that
// is not.
Manifest read_manifest(const Path& checkpoint);

}  // namespace strata::checkpoint
