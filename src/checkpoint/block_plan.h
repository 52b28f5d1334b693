// Plans which rank writes which bytes of tensor files, and which ranks send them. Pure data: every rank makes
// the same plan.
//
// Files are divided into blocks of one size, at multiples of it. Each rank writes a contiguous range of
// blocks, of the same length up to one, and receives their elements from the ranks that hold them
// (Split::serves).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_io.h"

namespace strata::checkpoint {

inline constexpr int64_t kBlockBytes = kChunkBytes;

// A safetensors file to be written. Floats are stored as `float_dtype`, if given.
struct TensorFileContent {
  std::string name;  // without the folder
  std::vector<TensorView> tensors;
  std::optional<DType> float_dtype;
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
};

class BlockPlan {
 public:
  // The contents must outlive the plan. InternalError if a view is inconsistent.
  BlockPlan(std::span<const TensorFileContent> files, int64_t ranks, int64_t block_bytes = kBlockBytes);

  const SafetensorsPlan& layout(size_t file) const { return files_[file].layout; }
  DType dtype(size_t file, size_t tensor) const { return files_[file].specs[tensor].dtype; }

  struct Block {
    size_t file = 0;
    uint64_t offset = 0, bytes = 0;  // in the file
  };
  int64_t blocks() const { return blocks_; }
  Block block(int64_t index) const;
  struct BlockRange {
    int64_t begin = 0, end = 0;
  };
  BlockRange blocks_of(int64_t rank) const;
  int64_t rounds() const;  // the largest number of blocks of a rank

  // The elements of a tensor in a block: [first, first + count) in the file's order, from byte `in_block` of
  // the block on.
  struct TensorRange {
    size_t tensor = 0;
    int64_t first = 0, count = 0;
    int64_t in_block = 0;
  };
  // In the order of the file. Each is a chunk with its own checksum.
  std::vector<TensorRange> tensor_ranges(const Block& block) const;

  // A region that `sender` sends to the `writer` of a block, in sending order. in_block: offset of its first
  // element in the block, in bytes.
  struct Transfer {
    size_t tensor = 0;
    const TensorView* part = nullptr;  // of the tensor, or all of it
    Region region;
    int64_t in_block = 0;
  };
  void for_each_transfer(const Block& block, int64_t sender, int64_t writer,
                         FunctionRef<void(const Transfer&)> each) const;
  // Total bytes of these regions, in the file's dtypes.
  int64_t transfer_bytes(const Block& block, int64_t sender, int64_t writer) const;

 private:
  struct File {
    std::vector<TensorSpec> specs;
    SafetensorsPlan layout;
    int64_t first_block = 0;
  };
  std::span<const TensorFileContent> contents_;
  std::vector<File> files_;
  int64_t ranks_ = 1, block_bytes_ = 0, blocks_ = 0;
};

}  // namespace strata::checkpoint
