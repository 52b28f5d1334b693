// Maps the elements of a tensor in a file to the memory of each rank. Pure data.
//
// Memory holds a tensor as a matrix (a vector has one column; all dimensions after the first are columns). A
// file holds it row by row: unchanged, transposed, or with its rows interleaved; or as equal blocks of rows,
// each in that order; or as a part of a tensor, between rows of other matrices. A rank holds a shard: some rows by some columns, both as lists of ranges.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "graph/shard.h"
#include "tensor/interleave.h"

namespace strata::checkpoint {

// Global indices [begin, end) of a dimension, stored from local index `at` on.
struct HeldRange {
  int64_t begin = 0, end = 0, at = 0;
  bool operator==(const HeldRange&) const = default;
};

struct TensorShard {
  std::vector<HeldRange> rows, columns;  // of the matrix in memory, ascending
  int64_t pitch = 0;                     // elements between two rows of this rank's memory
  int64_t elements() const;
  bool operator==(const TensorShard&) const = default;
};

// How a file orders the elements of a matrix, separately for each block of rows.
struct FileOrder {
  int64_t rows = 1, columns = 1;  // in memory
  bool transposed = false;
  Interleave interleave = {};  // of rows
  int64_t blocks = 1;          // equal parts of the rows
  PartRows part = {};          // without interleave and blocks
  FileOrder of_block() const { return {rows / blocks, columns, transposed, interleave, 1, part}; }
  // Columns of a block in the file.
  int64_t file_columns() const { return transposed ? part.of_tensor(rows / blocks) : columns; }
};
TensorShard whole_shard(const FileOrder& order);

// A rectangle in the file's order, with a constant pitch in the file and in a rank's memory.
struct Region {
  int64_t rows = 0, columns = 0;
  int64_t in_file = 0, file_pitch = 0;  // its first element, and elements between two of its rows
  // Its place in memory; if the file is transposed, the pitch is between two of its columns.
  int64_t in_memory = 0, memory_pitch = 0;
  bool operator==(const Region&) const = default;
};

// The regions of a shard within elements [first, first + count) of the file's tensor. Their order depends only on the
// arguments.
void for_each_region(const FileOrder& order, const TensorShard& shard, int64_t first, int64_t count,
                     FunctionRef<void(const Region&)> each);
int64_t elements_in(const FileOrder& order, const TensorShard& shard, int64_t first, int64_t count);

// How all ranks of a mesh hold a tensor. Axes that split neither its rows nor its columns replicate it.
class Split {
 public:
  // For rows [first_row, first_row + rows) of a value. `holders`: the pipeline stages that hold it; empty:
  // all.
  static Split of(const graph::Value& value, const graph::Mesh& mesh, int64_t first_row, int64_t rows,
                  std::vector<int32_t> holders = {});

  const graph::Mesh& mesh() const { return mesh_; }
  TensorShard shard(int64_t rank) const;
  // Whether `rank` sends its shard to `reader`. Of several replicas, the one with the reader's coordinates on
  // the replicating axes does, so a rank never receives elements that it holds itself.
  bool serves(int64_t rank, int64_t reader) const;
  // The ranks that serve a reader, ascending: together they hold each element once.
  std::vector<int64_t> servers_of(int64_t reader) const;

 private:
  // The part of one dimension that a rank holds.
  struct DimensionShard {
    std::vector<HeldRange> ranges;
    int64_t extent = 0;  // local indices, with the padding
  };
  struct DimensionSplit {
    std::vector<graph::Axis> axes;
    std::vector<DimensionShard> shards;  // by the index on these axes, the last of them fastest
  };
  size_t shard_index(const DimensionSplit& dimension, const graph::Coordinates& coordinates) const;
  bool splits(graph::Axis axis) const;
  // The pipeline stage from which a stage gets the tensor.
  int32_t holder_for(int32_t stage) const;

  graph::Mesh mesh_;
  std::vector<int32_t> holders_;
  DimensionSplit rows_, columns_;
};

}  // namespace strata::checkpoint
