// Between tensors in a storage and tensors in files, piece by piece: no second copy of a tensor is made, and
// a thread's pieces take kChunkBytes together. Checksums are XXH3-64 over the bytes as stored, taken while
// they pass by: one of each chunk, so that a rank can check what it reads of a tensor. Chunks are cut where
// the offset in the file is a multiple of their size, so that none lies in two blocks of a file.
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
#include "checkpoint/boxes.h"
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
  Interleave interleave = {};  // the file's rows (columns, where transposed) lie there part by part
  int64_t blocks = 0;          // shape[0], where the file's first dimension counts blocks of rows (boxes.h)
  // How the ranks hold it, each in its storage; null: each all of it.
  std::shared_ptr<const Split> split = nullptr;
};

struct MutableTensorView {
  std::string name;
  Shape shape;
  DType memory_dtype = DType::kF32;
  std::shared_ptr<WritableStorage> storage;
  bool transposed = false;
  Interleave interleave = {};
  int64_t blocks = 0;
  std::shared_ptr<const Split> split = nullptr;
  TensorView view() const {
    return {name, shape, memory_dtype, storage, transposed, interleave, blocks, split};
  }
};

// The dtype that a tensor gets in a file: `wanted`, if given, for a float, its own for anything else.
DType stored_dtype(DType memory_dtype, std::optional<DType> wanted);

// Bytes of a tensor, counted from its first.
struct Chunk {
  uint64_t first = 0, bytes = 0;
};
// Those of a tensor of `bytes` bytes at `offset` in its file that have a checksum each. With chunk_bytes = 0,
// as older programs wrote, all of it is one.
std::vector<Chunk> chunks_of(uint64_t offset, uint64_t bytes, uint64_t chunk_bytes);

struct TensorChecksums {
  uint64_t chunk_bytes = 0;
  std::vector<uint64_t> values;  // by chunk
};

struct StoredTensor {
  std::string name;
  std::vector<uint64_t> checksums;  // by chunk
};

struct StoredFile {
  std::string name;  // without the folder
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // over the whole file; of a safetensors file: over its length and header
  std::vector<StoredTensor> tensors;  // in the order of the views; empty for a file that is not safetensors
  uint64_t chunk_bytes = 0;           // of the tensors' checksums
};

// A small file of any kind, synced and closed, with its size checked afterwards.
StoredFile write_whole_file(FileSystem& files, const Path& path, std::string_view content);
// WorldError where a file has not as many bytes as were written to it.
void check_written(const Path& path, uint64_t bytes);

struct ReadOptions {
  bool check_finite = false;                   // a NaN or an infinity is a DataError that says where it lies
  const TensorChecksums* checksums = nullptr;  // to compare with; DataError where a chunk does not match
  int rank = 0;                                // whose part of the tensor is read
};

// Reads one tensor into `to` (shapes must agree, dtypes be convertible): of a split one the rank's part, and
// the chunks that it touches.
void read_tensor(const TensorFile& file, const TensorInfo& from, const MutableTensorView& to,
                 const ReadOptions& options = {});

// Reads a stored tensor without keeping its bytes.
struct TensorScan {
  std::vector<uint64_t> checksums;  // by chunk
  int64_t first_not_finite = -1;    // element with the first NaN or infinity
};
TensorScan scan_tensor(const TensorFile& file, const TensorInfo& tensor, uint64_t chunk_bytes = 0);

// Whether a file tensor of type `from` can be read into memory of type `to`.
bool is_convertible(DType from, DType to);

}  // namespace strata::checkpoint
