#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"

namespace strata::checkpoint {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian, read without swaps");

// Bits per element of every dtype of the format.
struct FormatDType {
  std::string_view name;
  uint64_t bits;
};
constexpr std::array<FormatDType, 22> kFormatDTypes{
    {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
     {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
     {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
     {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}}};

uint64_t bits_of(std::string_view name) {
  for (const auto& row : kFormatDTypes) {
    if (row.name == name) return row.bits;
  }
  return 0;
}

// Reads the header as a stream of events: everything is checked before it is used, and duplicate keys, which
// a JSON tree would drop, are detected.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(std::string where, SafetensorsHeader& header) : where_(std::move(where)), header_(header) {}

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a boolean"); }
  bool number_integer(number_integer_t) override { return scalar("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return scalar("a number that is not a 64-bit integer");
  }
  bool binary(binary_t&) override { return scalar("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ == 3 && in_array_ && (field_ == "shape" || field_ == "data_offsets")) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        fail("the number {} is too large", value);
      numbers_.push_back(static_cast<int64_t>(value));
      return true;
    }
    return scalar("a number");
  }

  bool string(string_t& value) override {
    if (depth_ == 2 && name_ == "__metadata__") {
      header_.metadata[field_] = value;
      return true;
    }
    if (depth_ == 2 && field_ == "dtype") {
      dtype_ = value;
      return true;
    }
    return scalar("a string");
  }

  bool start_object(size_t) override {
    if (depth_ >= 2) refuse_in_known_field("an object");
    enter();
    if (depth_ == 2) {
      fields_.clear();
      shape_.reset();
      offsets_.reset();
      dtype_.reset();
    }
    return true;
  }

  bool key(string_t& key) override {
    if (depth_ == 1) {
      if (key.size() > kMaxTensorNameBytes)
        fail("a tensor name has {} bytes; at most {} are allowed", key.size(), kMaxTensorNameBytes);
      name_ = key;
      if (!names_.insert(key).second) fail("'{}' appears twice", key);
    } else if (depth_ == 2) {
      field_ = key;
      if (!fields_.insert(key).second) fail("'{}' has the key '{}' twice", name_, key);
    }
    return true;
  }

  bool end_object() override {
    if (depth_ == 2 && name_ != "__metadata__") finish_tensor();
    --depth_;
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ < 2) fail("found an array, expected a {}", depth_ == 0 ? "header object" : "tensor entry");
    const bool wanted =
        depth_ == 2 && name_ != "__metadata__" && (field_ == "shape" || field_ == "data_offsets");
    if (!wanted) refuse_in_known_field("an array");
    enter();
    in_array_ = true;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    if (depth_ == 3 && field_ == "shape") shape_ = numbers_;
    if (depth_ == 3 && field_ == "data_offsets") offsets_ = numbers_;
    in_array_ = false;
    --depth_;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string text = error.what();
    const size_t colon = text.find(": ");
    fail("the header is not valid JSON at byte {}: {}", position,
         colon == std::string::npos ? text : text.substr(colon + 2));
  }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw DataError("[{}] not a valid safetensors file: {}", where_,
                    fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  void enter() {
    if (++depth_ > 4) fail("the header nests deeper than 4 levels in '{}'", name_);
  }

  // Unknown fields of a tensor entry may contain anything shallow; known fields must match the schema.
  void refuse_in_known_field(std::string_view found) const {
    if (depth_ == 0) fail("found {}, expected the header object", found);
    if (depth_ == 1) fail("'{}' is {}, expected a tensor entry", name_, found);
    if (name_ == "__metadata__") fail("__metadata__ has {} in '{}'; only strings are allowed", found, field_);
    if (field_ == "dtype" || field_ == "shape" || field_ == "data_offsets")
      fail("'{}' of '{}' contains {}", field_, name_, found);
  }
  bool scalar(std::string_view found) const {
    refuse_in_known_field(found);
    return true;
  }

  void finish_tensor() {
    if (!dtype_ || !shape_ || !offsets_)
      fail("'{}' lacks {}", name_, !dtype_ ? "dtype" : !shape_ ? "shape" : "data_offsets");
    const uint64_t bits = bits_of(*dtype_);
    if (bits == 0) fail("'{}' has the unknown dtype '{}'", name_, *dtype_);
    if (shape_->size() > kMaxRank)
      fail("'{}' has {} dimensions; at most {} are supported", name_, shape_->size(), kMaxRank);
    if (offsets_->size() != 2) fail("'{}' has {} data_offsets, expected 2", name_, offsets_->size());
    uint64_t total_bits = bits;
    for (const int64_t dim : *shape_) {
      if (__builtin_mul_overflow(total_bits, static_cast<uint64_t>(dim), &total_bits))
        fail("the size of '{}' overflows", name_);
    }
    if (total_bits % 8 != 0) fail("'{}' does not end on a whole byte", name_);
    const auto begin = static_cast<uint64_t>((*offsets_)[0]);
    const auto end = static_cast<uint64_t>((*offsets_)[1]);
    if (end < begin) fail("'{}' ends before it begins ({} < {})", name_, end, begin);
    if (end - begin != total_bits / 8)
      fail("'{}' {} {} needs {} bytes, its data_offsets span {}", name_, *dtype_, Shape(*shape_).str(),
           total_bits / 8, end - begin);
    header_.tensors.push_back(
        {name_, *dtype_, dtype_from_safetensors(*dtype_), Shape(*shape_), begin, end - begin});
  }

  std::string where_;
  SafetensorsHeader& header_;
  int depth_ = 0;
  bool in_array_ = false;
  std::string name_, field_;  // the entry that is being read and its current key
  std::set<std::string> names_, fields_;
  std::vector<int64_t> numbers_;
  std::optional<std::string> dtype_;
  std::optional<std::vector<int64_t>> shape_, offsets_;
};

// Checks that the tensors cover the data exactly once, and makes their offsets absolute.
void check_coverage(SafetensorsHeader& header, uint64_t data_bytes, const HeaderReader& reader) {
  auto& tensors = header.tensors;
  // An empty tensor has the same offset as the next tensor and must come before it.
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  uint64_t next = 0;
  for (auto& tensor : tensors) {
    if (tensor.offset != next)
      reader.fail("'{}' begins at byte {} of the data, expected {}: {}", tensor.name, tensor.offset, next,
                  tensor.offset < next ? "it overlaps the previous tensor" : "there is a gap before it");
    if (tensor.bytes > data_bytes - next)
      reader.fail("'{}' ends at byte {} of the data, which has {}: the file is truncated", tensor.name,
                  next + tensor.bytes, data_bytes);
    next += tensor.bytes;
    tensor.offset += header.data_offset;
  }
  if (next != data_bytes)
    reader.fail("found {} bytes of data, but the header describes {}", data_bytes, next);
}

}  // namespace

SafetensorsHeader read_safetensors_header(uint64_t file_bytes, const std::string& where,
                                          FunctionRef<void(uint64_t, void*, size_t)> read) {
  SafetensorsHeader header;
  HeaderReader reader(where, header);
  if (file_bytes < 8) reader.fail("found {} bytes, expected at least 8", file_bytes);
  uint64_t length = 0;
  read(0, &length, sizeof length);
  if (length > kMaxHeaderBytes)
    reader.fail("found a header of {} bytes; at most {} are allowed", length, kMaxHeaderBytes);
  if (length > file_bytes - 8) reader.fail("found a header of {} bytes in a file of {}", length, file_bytes);
  std::string text(length, '\0');
  read(8, text.data(), text.size());
  if (text.empty() || text[0] != '{') reader.fail("the header does not begin with '{{'");
  // The parser treats a zero byte as the end of its input.
  if (text.find('\0') != std::string::npos) reader.fail("found a zero byte in the header");
  Json::sax_parse(text, &reader);
  header.data_offset = 8 + length;
  check_coverage(header, file_bytes - header.data_offset, reader);
  Hasher hasher;
  hasher.update(&length, sizeof length);
  hasher.update(text);
  header.checksum = hasher.digest();
  return header;
}

SafetensorsFile::SafetensorsFile(const Path& path)
    : file_(path),
      header_(read_safetensors_header(
          file_.size(), path.string(),
          [this](uint64_t offset, void* out, size_t size) { file_.read_at(offset, out, size); })) {
  for (size_t i = 0; i < header_.tensors.size(); ++i) by_name_.emplace(header_.tensors[i].name, i);
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
}

void SafetensorsFile::read(const TensorInfo& tensor, uint64_t first, void* out, size_t size) const {
  STRATA_CHECK(first <= tensor.bytes && size <= tensor.bytes - first,
               "bytes {}+{} of '{}' are out of range: it has {}", first, size, tensor.name, tensor.bytes);
  file_.read_at(tensor.offset + first, out, size);
}

SafetensorsPlan plan_safetensors(std::span<const TensorSpec> specs,
                                 const std::map<std::string, std::string>& metadata) {
  // The reference writer sorts by dtype, the last of kFormatDTypes first, then by name.
  const auto rank = [](DType dtype) {
    const auto name = safetensors_name_of(dtype);
    return std::find_if(kFormatDTypes.begin(), kFormatDTypes.end(),
                        [&](const auto& row) { return row.name == name; }) -
           kFormatDTypes.begin();
  };
  SafetensorsPlan plan;
  plan.order.resize(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) plan.order[i] = i;
  std::sort(plan.order.begin(), plan.order.end(), [&](size_t a, size_t b) {
    const auto rank_a = rank(specs[a].dtype), rank_b = rank(specs[b].dtype);
    return rank_a != rank_b ? rank_a > rank_b : specs[a].name < specs[b].name;
  });

  std::set<std::string_view> names;
  std::string text = "{";
  const auto quote = [](const std::string& value) {
    try {
      return dump_json(Json(value));
    } catch (const Json::exception&) {
      throw InternalError("a tensor name is not UTF-8");
    }
  };
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (text.back() != '{') text += ',';
      text += quote(key) + ":" + quote(value);
    }
    text += '}';
  }
  plan.offset.resize(specs.size());
  uint64_t next = 0;
  for (const size_t i : plan.order) {
    const TensorSpec& spec = specs[i];
    STRATA_CHECK(names.insert(spec.name).second, "two tensors are named '{}'", spec.name);
    STRATA_CHECK(spec.name != "__metadata__" && spec.name.size() <= kMaxTensorNameBytes,
                 "'{}' is not a valid tensor name", spec.name.substr(0, 80));
    const uint64_t bytes = static_cast<uint64_t>(bytes_of(spec.dtype, spec.shape.elements()));
    if (text.size() > 1) text += ',';
    text +=
        fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[", quote(spec.name), safetensors_name_of(spec.dtype));
    for (int axis = 0; axis < spec.shape.rank(); ++axis)
      text += (axis > 0 ? "," : "") + std::to_string(spec.shape[axis]);
    text += fmt::format("],\"data_offsets\":[{},{}]}}", next, next + bytes);
    plan.offset[i] = next;
    next += bytes;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  STRATA_CHECK(text.size() <= kMaxHeaderBytes,
               "the header of {} tensors has {} bytes, but readers accept {}; use more shards", specs.size(),
               text.size(), kMaxHeaderBytes);
  const uint64_t length = text.size();
  plan.head.assign(reinterpret_cast<const char*>(&length), sizeof length);
  plan.head += text;
  for (auto& offset : plan.offset) offset += plan.head.size();
  plan.file_bytes = plan.head.size() + next;
  return plan;
}

}  // namespace strata::checkpoint
