// A file that holds named tensors, whatever its format: safetensors, or what torch.save wrote.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace strata {

// One tensor of a file, as the file describes it.
struct TensorInfo {
  std::string name;
  std::string dtype_name;      // as safetensors spells it: "F32", "F8_E4M3", …
  std::optional<DType> dtype;  // absent for a legal dtype that has no place in memory here
  Shape shape;
  uint64_t offset = 0;  // of the first byte, from the start of the file
  uint64_t bytes = 0;   // of its elements, row-major
};

// Reads are positional; several threads may read concurrently.
class TensorFile {
 public:
  virtual ~TensorFile() = default;
  virtual const Path& path() const = 0;
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  virtual const TensorInfo* find(std::string_view name) const = 0;  // null when it is not there
  // `size` bytes of a tensor of this file, from byte `first` of its row-major elements.
  virtual void read(const TensorInfo& tensor, uint64_t first, void* out, size_t size) const = 0;
  // XXH3-64 over what describes the tensors: a safetensors header, the pickle of torch.save.
  virtual uint64_t head_checksum() const = 0;
};

inline constexpr size_t kMaxTensorNameBytes = 4096;

}  // namespace strata
