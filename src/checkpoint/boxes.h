// Which elements of a file's tensor lie where in the memory of the ranks. Pure data.
//
// Memory holds a tensor as a matrix (a vector has one column; dimensions behind the second are part of the
// columns). A file holds it row by row, as it is, transposed, or with its rows interleaved; or block by block
// of so many rows, each in that order. A rank holds a box of it: some of the rows by some of the columns,
// both in spans.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "graph/shard.h"
#include "tensor/interleave.h"

namespace strata::checkpoint {

// Global indices [begin, end) of a dimension, which lie from local index `at` on.
struct Held {
  int64_t begin = 0, end = 0, at = 0;
  bool operator==(const Held&) const = default;
};

struct Box {
  std::vector<Held> rows, columns;  // ascending; of the tensor, as memory has it
  int64_t pitch = 0;                // elements between two rows of this rank's memory
  int64_t elements() const;
  bool operator==(const Box&) const = default;
};

// How a file orders the elements of a matrix in memory: those of each block of rows by themselves.
struct FileOrder {
  int64_t rows = 1, columns = 1;  // in memory
  bool transposed = false;
  Interleave interleave = {};  // of rows
  int64_t blocks = 1;          // equal parts of the rows
  FileOrder of_block() const { return {rows / blocks, columns, transposed, interleave, 1}; }
  // Of a block.
  int64_t file_columns() const { return transposed ? rows / blocks : columns; }
};
Box whole_box(const FileOrder& order);

// A rectangle whose rows and columns, in the file's order, lie evenly in the file and in a rank's memory.
struct Patch {
  int64_t rows = 0, columns = 0;
  int64_t in_file = 0, file_pitch = 0;  // its first element, and elements between two of its rows
  // In memory; where the file is transposed, the pitch is between two of its columns.
  int64_t in_memory = 0, memory_pitch = 0;
  bool operator==(const Patch&) const = default;
};

// The parts of elements [first, first + count) of the file that lie in a box, in an order that follows from
// the arguments alone.
void for_each_patch(const FileOrder& order, const Box& box, int64_t first, int64_t count,
                    FunctionRef<void(const Patch&)> each);
int64_t elements_in(const FileOrder& order, const Box& box, int64_t first, int64_t count);

// How all ranks of a mesh hold a tensor. Axes that cut neither its rows nor its columns replicate it.
class Split {
 public:
  // Of rows [first_row, first_row + rows) of a value. `holders`: the places on the pipeline axis that have
  // it; empty: all.
  static Split of(const graph::Value& value, const graph::Mesh& mesh, int64_t first_row, int64_t rows,
                  std::vector<int32_t> holders = {});

  const graph::Mesh& mesh() const { return mesh_; }
  Box box(int64_t rank) const;
  // Whether `rank` gives its box to `reader`: of replicas the one beside it on the axes that replicate, so
  // that a rank that holds the elements itself gets them from nobody else.
  bool serves(int64_t rank, int64_t reader) const;
  // Those that serve it, ascending: together they hold everything once.
  std::vector<int64_t> servers_of(int64_t reader) const;

 private:
  // One dimension.
  struct Part {
    std::vector<Held> spans;
    int64_t extent = 0;  // local indices, with the padding
  };
  struct Cut {
    std::vector<graph::Axis> axes;
    std::vector<Part> parts;  // by the index on these axes, the last of them fastest
  };
  size_t part_of(const Cut& cut, const graph::Coordinates& coordinates) const;
  bool cuts(graph::Axis axis) const;
  // The place on the pipeline axis that gives to another.
  int32_t giver_for(int32_t place) const;

  graph::Mesh mesh_;
  std::vector<int32_t> holders_;
  Cut rows_, columns_;
};

}  // namespace strata::checkpoint
