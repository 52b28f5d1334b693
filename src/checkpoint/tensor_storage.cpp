#include "checkpoint/tensor_storage.h"

#include <cstring>

namespace strata::checkpoint {
namespace {

class ConstHostStorage final : public ReadableStorage {
 public:
  explicit ConstHostStorage(const void* data) : data_(static_cast<const std::byte*>(data)) {}
  void read(int64_t offset, void* to, int64_t bytes) const override {
    if (bytes > 0) std::memcpy(to, data_ + offset, static_cast<size_t>(bytes));
  }

 private:
  const std::byte* data_;
};

class HostStorage final : public WritableStorage {
 public:
  explicit HostStorage(void* data) : data_(static_cast<std::byte*>(data)) {}
  void read(int64_t offset, void* to, int64_t bytes) const override {
    if (bytes > 0) std::memcpy(to, data_ + offset, static_cast<size_t>(bytes));
  }
  void write(int64_t offset, const void* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(data_ + offset, from, static_cast<size_t>(bytes));
  }

 private:
  std::byte* data_;
};

class FileStorage final : public ReadableStorage {
 public:
  FileStorage(const TensorFile& file, const TensorInfo& tensor) : file_(file), tensor_(tensor) {}
  void read(int64_t offset, void* to, int64_t bytes) const override {
    file_.read(tensor_, static_cast<uint64_t>(offset), to, static_cast<size_t>(bytes));
  }

 private:
  const TensorFile& file_;
  const TensorInfo& tensor_;
};

}  // namespace

std::shared_ptr<const ReadableStorage> in_memory(const void* data) {
  return std::make_shared<ConstHostStorage>(data);
}

std::shared_ptr<WritableStorage> in_memory(void* data) {
  return std::make_shared<HostStorage>(data);
}

std::shared_ptr<const ReadableStorage> in_file(const TensorFile& file, const TensorInfo& tensor) {
  return std::make_shared<FileStorage>(file, tensor);
}

}  // namespace strata::checkpoint
