// A tensor piece by piece: elements that follow one another in a file, out of and into a storage that may
// hold them in another order.
#pragma once

#include <vector>

#include "base/function_ref.h"
#include "checkpoint/tensor_io.h"

namespace strata::checkpoint {

// InternalError where shape, order and storage of a view do not go together.
void check_view(const TensorView& view);

struct Piece {
  int64_t first = 0;  // element, in the file's order
  int64_t count = 0;
};

class PieceMover {
 public:
  // Pieces have at most `most` elements. The view must outlive it.
  PieceMover(const TensorView& view, int64_t most);

  // The piece that begins at an element where one ends.
  Piece piece_at(int64_t first) const;
  // Between the storage and `count` consecutive elements.
  void read(const Piece& piece, void* to);
  void write(const Piece& piece, const void* from, WritableStorage& storage);

 private:
  void move_runs(const Piece& piece, FunctionRef<void(int64_t offset, int64_t in_piece, int64_t bytes)> move);

  const TensorView& view_;
  int64_t most_ = 0, element_bytes_ = 0;
  // Of a transposed tensor: a piece as the storage has it, column by column.
  std::vector<std::byte> columns_;
};

}  // namespace strata::checkpoint
