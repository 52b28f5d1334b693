#include "interop/torch/torch_file.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "interop/torch/zip_directory.h"

namespace strata::interop {
namespace {

using Kind = PickleValue::Kind;

constexpr uint64_t kMaxPickleBytes = 256'000'000;

struct StorageType {
  std::string_view name;
  DType dtype;
};
constexpr std::array<StorageType, 10> kStorageTypes{{{"torch.FloatStorage", DType::kF32},
                                                     {"torch.BFloat16Storage", DType::kBF16},
                                                     {"torch.HalfStorage", DType::kF16},
                                                     {"torch.DoubleStorage", DType::kF64},
                                                     {"torch.LongStorage", DType::kI64},
                                                     {"torch.IntStorage", DType::kI32},
                                                     {"torch.ShortStorage", DType::kI16},
                                                     {"torch.CharStorage", DType::kI8},
                                                     {"torch.ByteStorage", DType::kU8},
                                                     {"torch.BoolStorage", DType::kBool}}};

using Entries = std::map<std::string, ZipEntry, std::less<>>;

// The folder in the archive that holds data.pkl, usually "archive/".
std::string find_prefix(const Entries& entries, const std::string& where) {
  for (const auto& [name, entry] : entries) {
    if (name.ends_with("/data.pkl") && std::count(name.begin(), name.end(), '/') == 1)
      return name.substr(0, name.size() - 8);
  }
  throw DataError("[{}] is a zip archive without data.pkl: expected a file written by torch.save", where);
}

std::string read_entry(const ZipEntry& entry, FunctionRef<void(uint64_t, void*, size_t)> read) {
  std::string bytes(entry.bytes, '\0');
  if (entry.bytes > 0) read(entry.offset, bytes.data(), bytes.size());
  return bytes;
}

std::vector<int64_t> integers_of(const PickleValue& tuple, const std::string& where,
                                 const std::string& name) {
  std::vector<int64_t> numbers;
  for (const PickleValue* item : tuple.items) {
    if (item->kind != Kind::kInt || item->integer < 0)
      throw DataError("[{}] '{}' has sizes or strides that are not counts", where, name);
    numbers.push_back(item->integer);
  }
  return numbers;
}

// Describes tensors by their pickled values and the archive's directory.
class Describer {
 public:
  Describer(const Entries& entries, std::string prefix, const std::string& where, TorchContent& content)
      : entries_(entries), prefix_(std::move(prefix)), where_(where), content_(content) {}

  void add(const std::string& name, const PickleValue& value) {
    const PickleValue& storage = *value.items[0];
    const auto sizes = integers_of(*value.items[2], where_, name);
    auto strides = integers_of(*value.items[3], where_, name);
    require(sizes.size() == strides.size() && sizes.size() <= static_cast<size_t>(kMaxRank), name,
            "has too many dimensions, or not one stride for each");
    const std::string_view type = storage.items[0]->text;
    const auto row = std::find_if(kStorageTypes.begin(), kStorageTypes.end(),
                                  [&](const StorageType& each) { return each.name == type; });
    if (row == kStorageTypes.end())
      throw DataError("[{}] '{}' is stored in a {}, which is not supported", where_, name, type);
    const auto width = static_cast<uint64_t>(size_of(row->dtype));

    const auto entry = entries_.find(prefix_ + "data/" + std::string(storage.text));
    require(entry != entries_.end(), name, "has no data in the archive");
    const uint64_t capacity = entry->second.bytes / width;
    require(storage.integer >= 0 && static_cast<uint64_t>(storage.integer) == capacity, name,
            "has a storage whose size differs from the pickle's");
    uint64_t elements = 1, span = 1;
    for (size_t i = 0; i < sizes.size(); ++i) {
      uint64_t reach = 0;
      const bool fits = !__builtin_mul_overflow(elements, static_cast<uint64_t>(sizes[i]), &elements) &&
                        !__builtin_mul_overflow(static_cast<uint64_t>(std::max<int64_t>(sizes[i] - 1, 0)),
                                                static_cast<uint64_t>(strides[i]), &reach) &&
                        !__builtin_add_overflow(span, reach, &span);
      require(fits && elements <= static_cast<uint64_t>(INT64_MAX) / 8, name, "has an impossible size");
    }
    if (elements == 0) span = 0;
    const auto first = static_cast<uint64_t>(value.items[1]->integer);
    require(value.items[1]->integer >= 0 && first <= capacity && span <= capacity - first, name,
            "extends beyond its storage");
    require(elements <= capacity, name, "has more elements than its storage");

    if (is_row_major(sizes, strides)) strides.clear();
    content_.tensors.push_back({name, std::string(safetensors_name_of(row->dtype)), row->dtype,
                                Shape(std::span<const int64_t>(sizes)), entry->second.offset + first * width,
                                elements * width});
    content_.strides.push_back(std::move(strides));
  }

 private:
  void require(bool condition, const std::string& name, std::string_view what) const {
    if (!condition) throw DataError("[{}] '{}' {}", where_, name, what);
  }
  static bool is_row_major(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    int64_t expected = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
      if (sizes[i] == 0) return true;
      if (sizes[i] > 1 && strides[i] != expected) return false;
      expected *= sizes[i];
    }
    return true;
  }

  const Entries& entries_;
  std::string prefix_;
  const std::string& where_;
  TorchContent& content_;
};

// Names are written to safetensors headers and messages.
void check_name(const std::string& name, const std::string& where) {
  try {
    dump_json(nlohmann::json(name));
  } catch (const nlohmann::json::exception&) {
    throw DataError("[{}] a tensor's name is not UTF-8", where);
  }
  if (name.size() > kMaxTensorNameBytes || name == "__metadata__")
    throw DataError("[{}] '{}' cannot be a tensor's name", where, name.substr(0, 80));
}

template <typename Word>
void gather(const std::byte* from, const Shape& shape, const std::vector<int64_t>& strides, uint64_t first,
            size_t count, Word* out) {
  const auto columns = static_cast<uint64_t>(shape[-1]);
  const auto step = static_cast<size_t>(strides.back());
  for (size_t done = 0; done < count;) {
    uint64_t row = (first + done) / columns;
    const uint64_t column = (first + done) % columns;
    size_t at = column * step;
    for (int axis = shape.rank() - 2; axis >= 0; --axis) {
      at += row % static_cast<uint64_t>(shape[axis]) *
            static_cast<uint64_t>(strides[static_cast<size_t>(axis)]);
      row /= static_cast<uint64_t>(shape[axis]);
    }
    const size_t n = std::min<size_t>(count - done, columns - column);
    for (size_t i = 0; i < n; ++i)
      std::memcpy(out + done + i, from + (at + i * step) * sizeof(Word), sizeof(Word));
    done += n;
  }
}

}  // namespace

NamedValues tensors_of_dict(const PickleValue& root, const std::string& where) {
  if (root.kind != Kind::kDict)
    throw DataError("[{}] is not a dict of tensors: expected the output of torch.save(model.state_dict())",
                    where);
  NamedValues named;
  for (size_t i = 0; i < root.items.size(); i += 2) {
    if (root.items[i]->kind != Kind::kText)
      throw DataError("[{}] has a dict key that is not a text: expected a model's state dict", where);
    const std::string name(root.items[i]->text);
    if (root.items[i + 1]->kind != Kind::kTensor)
      throw DataError("[{}] '{}' is not a tensor: expected a model's state dict{}", where, name,
                      root.items[i + 1]->kind == Kind::kDict ? ", which this entry may be" : "");
    named.emplace_back(name, root.items[i + 1]);
  }
  return named;
}

TorchContent read_torch_content(uint64_t file_bytes, const std::string& where,
                                FunctionRef<void(uint64_t, void*, size_t)> read, const PickleUse& use) {
  std::array<char, 4> magic{};
  if (file_bytes >= magic.size()) read(0, magic.data(), magic.size());
  if (std::string_view(magic.data(), 2) != "PK") {
    const bool pickle = magic[0] == '\x80' && magic[1] >= 1 && magic[1] <= 5;
    throw DataError("[{}] {}", where,
                    pickle ? "is a bare pickle, as PyTorch wrote before 1.6. Convert it with "
                             "torch.save(torch.load(FILE, weights_only=True), FILE)"
                           : "is not a zip archive: expected a file written by torch.save");
  }
  const Entries entries = read_zip_directory(file_bytes, where, read);
  const std::string prefix = find_prefix(entries, where);
  if (const auto order = entries.find(prefix + "byteorder"); order != entries.end()) {
    if (order->second.bytes != 6 || read_entry(order->second, read) != "little")
      throw DataError("[{}] was saved on a big-endian machine, which is not supported", where);
  }
  TorchContent content;
  const ZipEntry& pickle = entries.at(prefix + "data.pkl");
  if (pickle.bytes > kMaxPickleBytes)
    throw DataError("[{}] has a pickle of {} bytes: expected at most {}", where, pickle.bytes,
                    kMaxPickleBytes);
  content.pickle_bytes = read_entry(pickle, read);
  content.pickle = std::make_unique<Pickle>(content.pickle_bytes, where, use.is_record);
  std::map<std::string, const PickleValue*> last;
  std::vector<std::string> order;
  for (auto& [name, value] : use.select(content.pickle->root(), where)) {
    check_name(name, where);
    if (last.insert_or_assign(name, value).second) order.push_back(name);
  }
  Describer describer(entries, prefix, where, content);
  for (const std::string& name : order) describer.add(name, *last.at(name));
  return content;
}

TorchFile::TorchFile(const Path& path)
    : TorchFile(path, {[](std::string_view) { return false; }, tensors_of_dict}) {}

TorchFile::TorchFile(const Path& path, const PickleUse& use)
    : file_(path),
      content_(read_torch_content(
          file_.size(), path.string(),
          [this](uint64_t offset, void* out, size_t size) { file_.read_at(offset, out, size); }, use)) {
  for (size_t i = 0; i < content_.tensors.size(); ++i) {
    by_name_.emplace(content_.tensors[i].name, i);
    if (!content_.strides[i].empty() && !map_) map_.emplace(path);
  }
}

const TensorInfo* TorchFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &content_.tensors[found->second];
}

void TorchFile::read(const TensorInfo& tensor, uint64_t first, void* out, size_t size) const {
  STRATA_CHECK(first <= tensor.bytes && size <= tensor.bytes - first, "bytes {}+{} of '{}', which has {}",
               first, size, tensor.name, tensor.bytes);
  const auto& strides = content_.strides[by_name_.find(tensor.name)->second];
  if (strides.empty()) return file_.read_at(tensor.offset + first, out, size);
  const auto width = static_cast<size_t>(size_of(*tensor.dtype));
  STRATA_CHECK(first % width == 0 && size % width == 0, "a part of an element of '{}'", tensor.name);
  const std::byte* from = map_->bytes().data() + tensor.offset;
  const auto each = [&]<typename Word>(Word* words) {
    gather(from, tensor.shape, strides, first / width, size / width, words);
  };
  switch (width) {
    case 1:
      return each(static_cast<uint8_t*>(out));
    case 2:
      return each(static_cast<uint16_t*>(out));
    case 4:
      return each(static_cast<uint32_t*>(out));
    default:
      return each(static_cast<uint64_t*>(out));
  }
}

uint64_t TorchFile::head_checksum() const {
  return hash64(content_.pickle_bytes);
}

}  // namespace strata::interop
