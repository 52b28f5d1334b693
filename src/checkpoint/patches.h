// Patches of a tensor between the memory of a rank, which may hold them in another order, and the file's
// order.
#pragma once

#include <vector>

#include "checkpoint/boxes.h"
#include "checkpoint/tensor_io.h"

namespace strata::checkpoint {

// InternalError where shape, order and storage of a view do not go together.
void check_view(const TensorView& view);

FileOrder order_of(const TensorView& view);
// What a rank's storage holds of it.
Box box_of(const TensorView& view, int64_t rank);

class PatchMover {
 public:
  // The view must outlive it.
  explicit PatchMover(const TensorView& view);

  // Between the storage and rows of the file that lie `pitch` elements apart, in the dtype of memory.
  void read(const Patch& patch, void* to, int64_t to_pitch);
  void write(const Patch& patch, const void* from, int64_t from_pitch, WritableStorage& storage);

 private:
  const TensorView& view_;
  int64_t element_bytes_ = 0;
  std::vector<std::byte> columns_;  // of a transposed tensor: a patch as memory has it
};

}  // namespace strata::checkpoint
