#include "checkpoint/expected_checksums.h"

#include "base/error.h"
#include "base/hash.h"

namespace strata::checkpoint {

ExpectedChecksums::ExpectedChecksums(const Manifest& manifest) {
  for (const auto& file : manifest.files) {
    heads_[file.name] = file.checksum;
    for (const auto& tensor : file.tensors)
      tensors_[{file.name, tensor.name}] = {file.chunk_bytes, tensor.checksums};
  }
}

void ExpectedChecksums::check_head(const TensorFile& file) const {
  const auto found = heads_.find(file.path().filename().string());
  if (found == heads_.end()) throw DataError("[{}] is not in the manifest", file.path().string());
  if (found->second != file.head_checksum())
    throw DataError("[{}] header does not match its checksum: the file is damaged", file.path().string());
}

const TensorChecksums& ExpectedChecksums::of(const TensorFile& file, const TensorInfo& tensor) const {
  const auto found = tensors_.find({file.path().filename().string(), tensor.name});
  if (found == tensors_.end())
    throw DataError("[{}] '{}' has no checksum in the manifest: the file is damaged", file.path().string(),
                    tensor.name);
  return found->second;
}

std::string read_checked(const Path& checkpoint, const Manifest& manifest, const std::string& name) {
  const StoredFile* file = manifest.find(name);
  if (file == nullptr) throw DataError("[{}] has no {} in its manifest", checkpoint.string(), name);
  std::string text = read_file(checkpoint / name);
  if (hash64(text) != file->checksum)
    throw DataError("[{}] does not match its checksum: the file is damaged", (checkpoint / name).string());
  return text;
}

void check_small_files(const Path& checkpoint, const Manifest& manifest) {
  for (const StoredFile& file : manifest.files) {
    if (!file.name.ends_with(".safetensors")) read_checked(checkpoint, manifest, file.name);
  }
}

}  // namespace strata::checkpoint
