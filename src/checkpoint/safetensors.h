// The safetensors format: u64 little-endian N, N bytes of JSON header, then the tensors' bytes.
// Reading is strict: tensors without gaps or overlap, no duplicate names, no value outside the schema's
// types, sizes checked for overflow. Writing plans the whole header first, in the order of the reference
// writer, so the same tensors produce the same bytes as the reference library.
// Errors: DataError with file and tensor for the content, ConfigError for a missing path.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/function_ref.h"
#include "tensor/tensor_file.h"

namespace strata::checkpoint {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;  // 8 + N: offset of the tensors' bytes
  uint64_t checksum = 0;     // XXH3-64 over the first data_offset bytes
};

// Reads and checks a header through read(offset, out, size); `where` names the file in messages.
SafetensorsHeader read_safetensors_header(uint64_t file_bytes, const std::string& where,
                                          FunctionRef<void(uint64_t, void*, size_t)> read);

class SafetensorsFile final : public TensorFile {
 public:
  explicit SafetensorsFile(const Path& path);
  const Path& path() const override { return file_.path(); }
  uint64_t size() const { return file_.size(); }
  const SafetensorsHeader& header() const { return header_; }
  const std::vector<TensorInfo>& tensors() const override { return header_.tensors; }
  const TensorInfo* find(std::string_view name) const override;
  void read(const TensorInfo& tensor, uint64_t first, void* out, size_t size) const override;
  uint64_t head_checksum() const override { return header_.checksum; }

 private:
  ReadableFile file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

// A tensor of a file to be written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

struct SafetensorsPlan {
  std::string head;              // the first bytes of the file: length and padded header
  std::vector<size_t> order;     // indices of the specs, in file order
  std::vector<uint64_t> offset;  // of spec i, from the start of the file
  uint64_t file_bytes = 0;
};

// InternalError for a name that is not unique or not UTF-8, and for a header over kMaxHeaderBytes.
SafetensorsPlan plan_safetensors(std::span<const TensorSpec> specs,
                                 const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// model.safetensors.index.json or pytorch_model.bin.index.json: the file of each tensor.
struct ShardIndex {
  std::map<std::string, std::string> file_of;  // tensor → file name
  std::vector<std::string> files;              // unique, sorted
};
// `extension`: of the shards.
ShardIndex parse_shard_index(std::string_view json, const std::string& where,
                             std::string_view extension = ".safetensors");
std::string format_shard_index(const std::map<std::string, std::string>& file_of, uint64_t total_bytes);

// Whether a name can safely be opened in a folder: [A-Za-z0-9._-]+, at most 255 characters, no dot at the
// start.
bool is_plain_file_name(std::string_view name);

}  // namespace strata::checkpoint
