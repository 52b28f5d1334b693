// Who writes which bytes of tensor files, and who gives them to whom. Pure data: every rank makes the same
// plan.
//
// Files are cut into blocks of one size, which end at multiples of it. Ranks take contiguous blocks, as many
// each as the others, and get what lies in a block from those that hold it (Split::serves).
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
  // The contents must outlive it. InternalError where a view makes no sense.
  BlockPlan(std::span<const TensorFileContent> files, int64_t ranks, int64_t block_bytes = kBlockBytes);

  // Of a file.
  const SafetensorsPlan& layout(size_t file) const { return files_[file].layout; }
  const TensorView& view(size_t file, size_t tensor) const { return contents_[file].tensors[tensor]; }
  DType dtype(size_t file, size_t tensor) const { return files_[file].specs[tensor].dtype; }

  struct Block {
    size_t file = 0;
    uint64_t offset = 0, bytes = 0;  // in the file
  };
  int64_t blocks() const { return blocks_; }
  Block block(int64_t index) const;
  struct Range {
    int64_t begin = 0, end = 0;
  };
  Range blocks_of(int64_t rank) const;
  int64_t rounds() const;  // the most blocks that a rank has

  // What a block holds of one tensor: elements [first, first + count) of the file's order, from byte
  // `in_block` on.
  struct Piece {
    size_t tensor = 0;
    int64_t first = 0, count = 0;
    int64_t in_block = 0;
  };
  // In the order of the file. They are as long as the chunks that have a checksum.
  std::vector<Piece> pieces(const Block& block) const;

  // What `giver` gives `writer` of a block, in the order in which it is sent; in_block: of its first element.
  struct Given {
    size_t tensor = 0;
    Patch patch;
    int64_t in_block = 0;
  };
  void for_each_given(const Block& block, int64_t giver, int64_t writer,
                      FunctionRef<void(const Given&)> each) const;
  // Its bytes, in the file's dtypes.
  int64_t bytes_given(const Block& block, int64_t giver, int64_t writer) const;

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
