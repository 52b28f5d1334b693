// Between tensors in a storage and tensors in files, piece by piece: no second copy of a tensor is made, and
// a thread's pieces take kChunkBytes together. Checksums are XXH3-64 over the bytes as stored, taken while
// they pass by.
//
// A storage must not change while it is being saved.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_storage.h"
#include "tensor/dtype.h"
#include "tensor/interleave.h"
#include "tensor/shape.h"

namespace strata::checkpoint {

inline constexpr int64_t kChunkBytes = int64_t{4} << 20;

struct TensorView {
  std::string name;  // of the tensor in the file
  Shape shape;       // as in the file
  DType memory_dtype = DType::kF32;
  std::shared_ptr<const ReadableStorage> storage;  // of memory_dtype, row-major, contiguous
  bool transposed = false;     // the storage holds [shape[1], shape[0]], as for the Conv1D weights of GPT-2
  Interleave interleave = {};  // the file's rows lie there part by part; not together with transposed
};

struct MutableTensorView {
  std::string name;
  Shape shape;
  DType memory_dtype = DType::kF32;
  std::shared_ptr<WritableStorage> storage;
  bool transposed = false;
  Interleave interleave = {};
  TensorView view() const { return {name, shape, memory_dtype, storage, transposed, interleave}; }
};

// The dtype that a tensor gets in a file: `wanted`, if given, for a float, its own for anything else.
DType stored_dtype(DType memory_dtype, std::optional<DType> wanted);

// What was written, or found while reading.
struct StoredTensor {
  std::string name;
  uint64_t checksum = 0;
};

struct StoredFile {
  std::string name;  // without the folder
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // over the whole file; of a safetensors file: over its length and header
  std::vector<StoredTensor> tensors;  // in the order of the views; empty for a file that is not safetensors
};

// One safetensors file, synced and closed, with its size checked afterwards.
StoredFile write_tensor_file(FileSystem& files, const Path& path, std::span<const TensorView> tensors,
                             std::optional<DType> float_dtype,
                             const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// The same for a small file of any other kind.
StoredFile write_whole_file(FileSystem& files, const Path& path, std::string_view content);

// Reads one tensor into `to` (shapes must agree, dtypes be convertible) and returns the checksum of its
// bytes. With check_finite, a NaN or an infinity is a DataError that says where it lies.
uint64_t read_tensor(const TensorFile& file, const TensorInfo& from, const MutableTensorView& to,
                     bool check_finite = false);

// Reads a stored tensor without keeping its bytes.
struct TensorScan {
  uint64_t checksum = 0;
  int64_t first_not_finite = -1;  // element with the first NaN or infinity
};
TensorScan scan_tensor(const TensorFile& file, const TensorInfo& tensor);

// Whether a file tensor of type `from` can be read into memory of type `to`.
bool is_convertible(DType from, DType to);

}  // namespace strata::checkpoint
