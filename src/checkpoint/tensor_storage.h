// Where the bytes of a tensor lie: in memory of the host, in that of a device, in another file. Whoever moves
// tensors copies parts out and in, and never learns an address.
#pragma once

#include <cstdint>
#include <memory>

#include "tensor/tensor_file.h"

namespace strata::checkpoint {

// Several threads may copy disjoint parts at once.
class ReadableStorage {
 public:
  virtual ~ReadableStorage() = default;
  // `bytes` bytes from byte `offset` of the tensor on.
  virtual void read(int64_t offset, void* to, int64_t bytes) const = 0;
};

class WritableStorage : public ReadableStorage {
 public:
  virtual void write(int64_t offset, const void* from, int64_t bytes) = 0;
};

// The host's memory and the file must outlive what is made of them.
std::shared_ptr<const ReadableStorage> in_memory(const void* data);
std::shared_ptr<WritableStorage> in_memory(void* data);
std::shared_ptr<const ReadableStorage> in_file(const TensorFile& file, const TensorInfo& tensor);

}  // namespace strata::checkpoint
