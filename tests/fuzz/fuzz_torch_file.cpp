// Any bytes as a file of torch.save: rejected with a DataError, or tensors within the file.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "interop/torch/torch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  using namespace strata::interop;
  const auto require = [](bool condition) {
    if (!condition) std::abort();
  };
  try {
    const TorchContent content =
        read_torch_content(size, "fuzz",
                           [&](uint64_t offset, void* out, size_t bytes) {
                             require(offset <= size && bytes <= size - offset);
                             if (bytes > 0) std::memcpy(out, data + offset, bytes);
                           },
                           {[](std::string_view) { return false; }, tensors_of_dict});
    for (size_t i = 0; i < content.tensors.size(); ++i) {
      const TensorInfo& tensor = content.tensors[i];
      uint64_t last = tensor.bytes;
      if (!content.strides[i].empty()) {
        last = static_cast<uint64_t>(size_of(*tensor.dtype));
        for (int axis = 0; axis < tensor.shape.rank(); ++axis)
          last +=
              static_cast<uint64_t>((tensor.shape[axis] - 1) * content.strides[i][static_cast<size_t>(axis)] *
                                    size_of(*tensor.dtype));
      }
      require(tensor.offset <= size && last <= size - tensor.offset);
    }
  } catch (const DataError&) {
  }
  return 0;
}
