#include "checkpoint/recut.h"

#include <algorithm>
#include <memory>

#include "base/error.h"

namespace strata::checkpoint {
namespace {

// A file whose tensors are consecutive parts of the bytes of others.
class RecutFile final : public TensorFile {
 public:
  explicit RecutFile(Path path) : path_(std::move(path)) {}

  // Cuts the bytes of `from` into tensors of these shapes.
  void add(std::vector<TensorSource::Entry> from, std::span<const TensorSpec> tensors) {
    const TensorInfo& like = *from.front().tensor;
    uint64_t begin = 0;
    for (const TensorSpec& spec : tensors) {
      const auto bytes = static_cast<uint64_t>(bytes_of(*like.dtype, spec.shape.elements()));
      tensors_.push_back({spec.name, like.dtype_name, like.dtype, spec.shape, 0, bytes});
      places_.push_back({groups_.size(), begin});
      begin += bytes;
    }
    groups_.push_back(std::move(from));
  }

  const Path& path() const override { return path_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view name) const override {
    const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                    [&](const TensorInfo& tensor) { return tensor.name == name; });
    return found == tensors_.end() ? nullptr : &*found;
  }
  void read(const TensorInfo& tensor, uint64_t first, void* out, size_t size) const override {
    const Place& place = places_[static_cast<size_t>(&tensor - tensors_.data())];
    uint64_t begin = place.begin + first;  // in the bytes of the group
    auto* to = static_cast<std::byte*>(out);
    for (const TensorSource::Entry& each : groups_[place.group]) {
      const uint64_t bytes = each.tensor->bytes;
      if (size == 0) break;
      if (begin >= bytes) {
        begin -= bytes;
        continue;
      }
      const auto here = static_cast<size_t>(std::min<uint64_t>(bytes - begin, size));
      each.file->read(*each.tensor, begin, to, here);
      to += here;
      size -= here;
      begin = 0;
    }
    STRATA_CHECK(size == 0, "'{}' is read past its end", tensor.name);
  }
  uint64_t head_checksum() const override { return 0; }  // checkpoints have the family's cuts

 private:
  struct Place {
    size_t group = 0;
    uint64_t begin = 0;  // of the tensor in the group
  };
  Path path_;
  std::vector<TensorInfo> tensors_;
  std::vector<Place> places_;                             // of each tensor
  std::vector<std::vector<TensorSource::Entry>> groups_;  // in the order of their bytes
};

// The tensors of a group in a source; empty if it has the family's cuts, or does not have the group at all.
std::vector<TensorSource::Entry> cut_elsewhere(const TensorSource& source, const CutTensors& group) {
  std::vector<TensorSource::Entry> found;
  int64_t rows = 0, wanted = 0;
  bool differs = false;
  for (const TensorSpec& spec : group.tensors) {
    const auto at = source.tensors.find(spec.name);
    if (at == source.tensors.end()) return {};
    const TensorInfo& tensor = *at->second.tensor;
    const Shape& shape = tensor.shape;
    if (!tensor.dtype || shape.rank() != spec.shape.rank() || shape.rank() == 0) return {};
    if (!found.empty() && tensor.dtype != found.front().tensor->dtype) return {};
    for (int dim = 1; dim < shape.rank(); ++dim)
      if (shape[dim] != spec.shape[dim]) return {};
    rows += shape[0];
    wanted += spec.shape[0];
    differs = differs || shape[0] != spec.shape[0];
    found.push_back(at->second);
  }
  return differs && rows == wanted ? found : std::vector<TensorSource::Entry>{};
}

}  // namespace

void recut(TensorSource& source, std::span<const CutTensors> groups) {
  std::unique_ptr<RecutFile> made;
  for (const CutTensors& group : groups) {
    auto from = cut_elsewhere(source, group);
    if (from.empty()) continue;
    if (made == nullptr) made = std::make_unique<RecutFile>(from.front().file->path());
    made->add(std::move(from), group.tensors);
  }
  if (made == nullptr) return;
  for (const TensorInfo& tensor : made->tensors()) source.tensors[tensor.name] = {made.get(), &tensor};
  source.files.push_back(std::move(made));
}

}  // namespace strata::checkpoint
