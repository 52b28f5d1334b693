// Copies regions of a tensor between the memory of a rank, which may hold them in another order, and the
// order of the file.
#pragma once

#include <vector>

#include "checkpoint/tensor_io.h"
#include "checkpoint/tensor_shard.h"

namespace strata::checkpoint {

// InternalError if shape, order and storage of a view do not match.
void check_view(const TensorView& view);

// Of a view without parts, or of a part.
FileOrder order_of(const TensorView& view);
// The shard in a rank's storage.
TensorShard shard_of(const TensorView& view, int64_t rank);

class RegionCopier {
 public:
  // The view must outlive it.
  explicit RegionCopier(const TensorView& view);

  // Copies between the storage and rows of the file, whose pitch is in elements; both in the dtype of memory.
  void read(const Region& region, void* to, int64_t to_pitch);
  void write(const Region& region, const void* from, int64_t from_pitch, WritableStorage& storage);

 private:
  const TensorView& view_;
  int64_t element_bytes_ = 0;
  std::vector<std::byte> columns_;  // a region in the order of memory, if the tensor is transposed
};

}  // namespace strata::checkpoint
