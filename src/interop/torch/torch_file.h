// Reads files written by torch.save (PyTorch 1.6 and later): a zip archive of a pickle, which describes the
// tensors, and the bytes of each storage. Nothing in them is executed (interop/torch/pickle.h). Tensors may
// share a storage, with any offset and strides; a tensor that is not row-major is gathered as it is read.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "interop/torch/pickle.h"
#include "tensor/tensor_file.h"

namespace strata::interop {

using NamedValues = std::vector<std::pair<std::string, const PickleValue*>>;

// How to read a pickle: the globals that become inert records, and the tensors to return, with names.
struct PickleUse {
  std::function<bool(std::string_view global)> is_record;
  std::function<NamedValues(const PickleValue& root, const std::string& where)> select;
};

// The tensors of a dict, such as a model's state_dict(). DataError if any value is not a tensor.
NamedValues tensors_of_dict(const PickleValue& root, const std::string& where);

struct TorchContent {
  std::string pickle_bytes;
  std::unique_ptr<Pickle> pickle;
  std::vector<TensorInfo> tensors;            // of a repeated name the last one, as in Python
  std::vector<std::vector<int64_t>> strides;  // one per tensor, in elements; empty: row-major
};

// Reads and checks everything except the tensors' bytes, by calling read(offset, out, size).
TorchContent read_torch_content(uint64_t file_bytes, const std::string& where,
                                FunctionRef<void(uint64_t, void*, size_t)> read, const PickleUse& use);

class TorchFile final : public TensorFile {
 public:
  explicit TorchFile(const Path& path);  // a state dict
  TorchFile(const Path& path, const PickleUse& use);
  const Path& path() const override { return file_.path(); }
  const std::vector<TensorInfo>& tensors() const override { return content_.tensors; }
  const TensorInfo* find(std::string_view name) const override;
  void read(const TensorInfo& tensor, uint64_t first, void* out, size_t size) const override;
  uint64_t head_checksum() const override;
  const PickleValue& root() const { return content_.pickle->root(); }

 private:
  ReadableFile file_;
  TorchContent content_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::optional<MappedFile> map_;  // if a tensor is not row-major
};

}  // namespace strata::interop
