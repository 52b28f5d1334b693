// Any bytes as a safetensors file: rejected with a DataError, or a header whose tensors cover the data
// exactly and can be laid out again. The same bytes are also parsed as a shard index.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  using namespace strata::checkpoint;
  try {
    const auto header = read_safetensors_header(size, "fuzz", [&](uint64_t offset, void* out, size_t bytes) {
      require(offset <= size && bytes <= size - offset);
      if (bytes > 0) std::memcpy(out, data + offset, bytes);
    });
    uint64_t next = header.data_offset;
    std::vector<TensorSpec> specs;
    for (const auto& tensor : header.tensors) {
      require(tensor.offset == next);
      next += tensor.bytes;
      if (!tensor.dtype) continue;
      require(static_cast<uint64_t>(bytes_of(*tensor.dtype, tensor.shape.elements())) == tensor.bytes);
      specs.push_back({tensor.name, *tensor.dtype, tensor.shape});
    }
    require(next == size);
    if (specs.size() == header.tensors.size()) {
      const auto plan = plan_safetensors(specs, header.metadata);
      require(plan.file_bytes - plan.head.size() == size - header.data_offset);
    }
  } catch (const DataError&) {
  }
  try {
    parse_shard_index({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const DataError&) {
  }
  return 0;
}
