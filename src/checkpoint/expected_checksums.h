// The checksums of a manifest, compared with while tensors are read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "checkpoint/manifest.h"
#include "tensor/tensor_file.h"

namespace strata::checkpoint {

class ExpectedChecksums {
 public:
  explicit ExpectedChecksums(const Manifest& manifest);

  // DataError for a file or tensor that is not in the manifest, or a header that differs from it.
  void check_head(const TensorFile& file) const;
  const TensorChecksums& of(const TensorFile& file, const TensorInfo& tensor) const;

 private:
  std::map<std::string, uint64_t> heads_;
  std::map<std::pair<std::string, std::string>, TensorChecksums> tensors_;
};

// Reads a file of a checkpoint that is not a tensor file; DataError if it has changed since it was written.
std::string read_checked(const Path& checkpoint, const Manifest& manifest, const std::string& name);
// Checks all such files: configuration, tokenizer, state.
void check_small_files(const Path& checkpoint, const Manifest& manifest);

}  // namespace strata::checkpoint
