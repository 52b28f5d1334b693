// Access to the bytes of a tensor in host memory, device memory or another file, by copies of byte ranges:
// code that moves tensors never sees an address.
#pragma once

#include <cstdint>
#include <memory>

#include "tensor/tensor_file.h"

namespace strata::checkpoint {

// Several threads may copy disjoint ranges at the same time.
class ReadableStorage {
 public:
  virtual ~ReadableStorage() = default;
  // Copies `bytes` bytes, from byte `offset` of the tensor on.
  virtual void read(int64_t offset, void* to, int64_t bytes) const = 0;
};

class WritableStorage : public ReadableStorage {
 public:
  virtual void write(int64_t offset, const void* from, int64_t bytes) = 0;
};

// The memory or file must outlive the storage.
std::shared_ptr<const ReadableStorage> in_memory(const void* data);
std::shared_ptr<WritableStorage> in_memory(void* data);
std::shared_ptr<const ReadableStorage> in_file(const TensorFile& file, const TensorInfo& tensor);

}  // namespace strata::checkpoint
