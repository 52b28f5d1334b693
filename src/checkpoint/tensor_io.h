// Moves tensors between storages and files in slices, without a second copy of a tensor; the slices of a
// thread take at most kChunkBytes. Checksums are XXH3-64 over the stored bytes, one for each chunk, so that a
// rank can verify the part of a tensor that it reads. Chunks end at file offsets that are multiples of their
// size, so no chunk crosses a block of the file.
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
#include "checkpoint/tensor_shard.h"
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
  Interleave interleave = {};  // how the file interleaves the rows of the storage (columns, if transposed)
  int64_t blocks = 0;  // shape[0], if the file's first dimension counts blocks of rows (tensor_shard.h)
  // How the ranks hold it, each its shard in its storage; null: each rank holds the whole tensor.
  std::shared_ptr<const Split> split = nullptr;
  bool keeps_dtype = false;  // in the file it has the dtype of memory, whatever the other floats have
  // Its shape in the file if that has other dimensions, as the [C, 1, w] of a depthwise convolution has.
  Shape file_shape = {};
  // If it consists of rows of several matrices: these, each with its storage and its own rows as shape; the
  // whole then has no storage, and the widest of their dtypes.
  std::vector<TensorView> parts = {};
  PartRows part = {};  // of a part

  const Shape& stored_shape() const { return file_shape.rank() > 0 ? file_shape : shape; }
  // In a file whose floats are of type `floats`, if given; only floats change.
  DType stored_dtype(std::optional<DType> floats) const;
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
  Shape file_shape = {};
  std::vector<MutableTensorView> parts = {};
  PartRows part = {};

  const Shape& stored_shape() const { return file_shape.rank() > 0 ? file_shape : shape; }
  TensorView view() const;
};

// Calls each(part) with the view itself if it has no parts.
template <typename View, typename Each>
void for_each_part(View& view, Each each) {
  if (view.parts.empty()) return each(view);
  for (auto& part : view.parts) each(part);
}

// A range of bytes, relative to the tensor's first.
struct Chunk {
  uint64_t first = 0, bytes = 0;
};
// The chunks of a tensor of `bytes` bytes at `offset` of its file. chunk_bytes = 0 (older programs): one
// chunk for the whole tensor.
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

// Writes a small file, syncs and closes it and checks its size.
StoredFile write_whole_file(FileSystem& files, const Path& path, std::string_view content);
// WorldError if the size of a file is not `bytes`.
void check_written(const Path& path, uint64_t bytes);

struct ReadOptions {
  bool check_finite = false;                   // DataError with the position of a NaN or infinity
  const TensorChecksums* checksums = nullptr;  // DataError for a chunk that does not match
  int rank = 0;                                // the rank whose shard is read
};

// Reads a tensor into `to`; its shape must be to.stored_shape() and dtypes convertible. Of a split tensor,
// reads only the chunks that overlap the rank's shard.
void read_tensor(const TensorFile& file, const TensorInfo& from, const MutableTensorView& to,
                 const ReadOptions& options = {});

// Reads a whole stored tensor for its checksums and NaNs.
struct TensorScan {
  std::vector<uint64_t> checksums;  // by chunk
  int64_t first_not_finite = -1;    // first element that is NaN or infinite
};
TensorScan scan_tensor(const TensorFile& file, const TensorInfo& tensor, uint64_t chunk_bytes = 0);

// Whether a file tensor of type `from` can be read into memory of type `to`.
bool is_convertible(DType from, DType to);

}  // namespace strata::checkpoint
