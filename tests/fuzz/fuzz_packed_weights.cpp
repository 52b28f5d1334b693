// Any bytes as a safetensors file of weights in fp8 or MXFP4: rejected with a DataError, or weights of which any part can
// be read, none of them by a scale that is not above 0.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "checkpoint/packed_weights.h"
#include "checkpoint/safetensors.h"

namespace {

using namespace strata;

void require(bool condition) {
  if (!condition) std::abort();
}

class FileInMemory final : public TensorFile {
 public:
  FileInMemory(const uint8_t* data, size_t size) : data_(data), size_(size) {
    header_ = checkpoint::read_safetensors_header(
        size, "fuzz", [&](uint64_t offset, void* out, size_t bytes) { copy(offset, out, bytes); });
  }
  const Path& path() const override { return path_; }
  const std::vector<TensorInfo>& tensors() const override { return header_.tensors; }
  const TensorInfo* find(std::string_view) const override { return nullptr; }
  void read(const TensorInfo& tensor, uint64_t first, void* out, size_t size) const override {
    require(first <= tensor.bytes && size <= tensor.bytes - first);
    copy(tensor.offset + first, out, size);
  }
  uint64_t head_checksum() const override { return 0; }

 private:
  void copy(uint64_t offset, void* out, size_t bytes) const {
    require(offset <= size_ && bytes <= size_ - offset);
    if (bytes > 0) std::memcpy(out, data_ + offset, bytes);
  }
  const uint8_t* data_;
  size_t size_;
  Path path_ = "fuzz";
  checkpoint::SafetensorsHeader header_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    checkpoint::TensorSource source;
    source.where = "fuzz";
    source.files.push_back(std::make_unique<FileInMemory>(data, size));
    for (const TensorInfo& tensor : source.files[0]->tensors())
      source.tensors.insert({tensor.name, {source.files[0].get(), &tensor}});
    checkpoint::unpack_weights(source);
    if (source.files.size() == 1) return 0;
    for (const TensorInfo& tensor : source.files[1]->tensors()) {
      const auto count = static_cast<uint64_t>(tensor.shape.elements());
      require(tensor.bytes == count * sizeof(float));
      // Whole, and the second half again.
      std::vector<float> all(count), half(count - count / 2);
      source.files[1]->read(tensor, 0, all.data(), all.size() * sizeof(float));
      source.files[1]->read(tensor, count / 2 * sizeof(float), half.data(), half.size() * sizeof(float));
      require(half.empty() ||
              std::memcmp(half.data(), all.data() + count / 2, half.size() * sizeof(float)) == 0);
    }
  } catch (const DataError&) {
  }
  return 0;
}
