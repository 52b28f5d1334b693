// manifest.json, the last file of a checkpoint to be written: a checkpoint exists exactly when its manifest
// does. It names every file with its size and checksum, every tensor with its own, and how the run was doing.
// It carries a checksum of itself; later formats must keep that field and how it is made (see
// format_manifest).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "checkpoint/tensor_io.h"

namespace strata::checkpoint {

inline constexpr int kFormatVersion = 1;     // of what is written
inline constexpr int kUnderstoodFormat = 1;  // the highest "min_reader" that this program can read

// How the run was doing when it was saved.
struct Health {
  double loss = 0;
  double grad_norm = 0;
  bool finite = true;  // no NaN or infinity in weights, loss or gradients, as the run saw it
  std::map<std::string, double> metrics;  // "eval/valid/loss", …
  bool good() const;                      // finite, and so are loss and gradient norm
};

struct Manifest {
  int64_t step = 0;
  std::string program;  // "strata 0.1.0"
  std::string created;  // UTC
  Health health;
  std::vector<StoredFile> files;
  uint64_t bytes() const;  // of all files
  const StoredFile* find(std::string_view file) const;
};

std::string format_manifest(const Manifest& manifest);

// DataError for anything damaged, ConfigError when a newer program wrote it.
Manifest parse_manifest(std::string_view text, const std::string& where);

// The manifest of a checkpoint whose files are all there with the right sizes; DataError for the first that
// is not.
Manifest read_manifest(const Path& checkpoint);

}  // namespace strata::checkpoint
