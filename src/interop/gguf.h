// Writes GGUF version 3, llama.cpp's file format. Little-endian: "GGUF", version, counts, metadata; for each
// tensor its name, sizes (innermost first), type and offset; then the tensors' bytes, each aligned to 32.
// Source of the layout: ggml's docs/gguf.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/file.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace strata::interop {

using GgufValue =
    std::variant<uint32_t, float, bool, std::string, std::vector<std::string>, std::vector<int32_t>,
                 std::vector<float>, std::vector<uint8_t>, std::vector<bool>>;
using GgufFields = std::vector<std::pair<std::string, GgufValue>>;

struct GgufTensor {
  std::string name;
  Shape shape;                       // row-major
  DType dtype = DType::kF32;         // kF32, kF16 or kBF16
  std::function<void(float*)> fill;  // writes all elements
};

uint64_t bytes_of(const GgufFields& fields, const std::vector<GgufTensor>& tensors);

// Writes the file atomically: it gets its name once it is complete and synced. Holds one tensor at a time in
// memory, as fp32. DataError for a value that fp16 cannot represent.
void write_gguf(FileSystem& files, const Path& path, const GgufFields& fields,
                const std::vector<GgufTensor>& tensors);

}  // namespace strata::interop
