#include "interop/gguf.h"

#include <unistd.h>

#include <cmath>

#include "base/error.h"
#include "checkpoint/huggingface.h"

namespace strata::interop {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint64_t kAlignment = 32;
constexpr int64_t kChunk = int64_t{1} << 20;  // elements per conversion

// The format's codes for value types.
enum ValueType : uint32_t {
  kUint8 = 0,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9
};

uint32_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 30;
    default:
      throw InternalError("a GGUF tensor of type {}", name_of(dtype));
  }
}

uint64_t aligned(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

uint64_t bytes_of(const GgufTensor& tensor) {
  return static_cast<uint64_t>(tensor.shape.elements() * size_of(tensor.dtype));
}

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_text(std::string& out, const std::string& text) {
  put<uint64_t>(out, text.size());
  out += text;
}

void put_value(std::string& out, const GgufValue& value) {
  const auto array = [&](uint32_t type, size_t count) {
    put<uint32_t>(out, kArray);
    put<uint32_t>(out, type);
    put<uint64_t>(out, count);
  };
  if (const auto* number = std::get_if<uint32_t>(&value)) {
    put<uint32_t>(out, kUint32);
    put(out, *number);
  } else if (const auto* real = std::get_if<float>(&value)) {
    put<uint32_t>(out, kFloat32);
    put(out, *real);
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    put<uint32_t>(out, kBool);
    put<uint8_t>(out, *flag ? 1 : 0);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    put<uint32_t>(out, kString);
    put_text(out, *text);
  } else if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    array(kString, texts->size());
    for (const auto& each : *texts) put_text(out, each);
  } else if (const auto* numbers = std::get_if<std::vector<int32_t>>(&value)) {
    array(kInt32, numbers->size());
    for (const int32_t each : *numbers) put(out, each);
  } else if (const auto* bytes = std::get_if<std::vector<uint8_t>>(&value)) {
    array(kUint8, bytes->size());
    out.append(bytes->begin(), bytes->end());
  } else if (const auto* flags = std::get_if<std::vector<bool>>(&value)) {
    array(kBool, flags->size());
    for (const bool each : *flags) put<uint8_t>(out, each ? 1 : 0);
  } else {
    const auto& reals = std::get<std::vector<float>>(value);
    array(kFloat32, reals.size());
    for (const float each : reals) put(out, each);
  }
}

std::string head_of(const GgufFields& fields, const std::vector<GgufTensor>& tensors) {
  std::string head = "GGUF";
  put(head, kVersion);
  put<uint64_t>(head, tensors.size());
  put<uint64_t>(head, fields.size());
  for (const auto& [key, value] : fields) {
    put_text(head, key);
    put_value(head, value);
  }
  uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    put_text(head, tensor.name);
    put(head, static_cast<uint32_t>(tensor.shape.rank()));
    for (int axis = tensor.shape.rank() - 1; axis >= 0; --axis)
      put(head, static_cast<uint64_t>(tensor.shape[axis]));
    put(head, type_of(tensor.dtype));
    put(head, offset);
    offset += aligned(bytes_of(tensor));
  }
  head.resize(aligned(head.size()), '\0');
  return head;
}

void append_tensor(WritableFile& file, const GgufTensor& tensor, std::vector<float>& values,
                   std::vector<std::byte>& converted) {
  const int64_t elements = tensor.shape.elements();
  values.resize(static_cast<size_t>(elements));
  tensor.fill(values.data());
  for (int64_t first = 0; first < elements; first += kChunk) {
    const int64_t n = std::min(kChunk, elements - first);
    const void* bytes = values.data() + first;
    if (tensor.dtype == DType::kF16) {
      for (int64_t i = first; i < first + n; ++i) {
        if (std::abs(values[static_cast<size_t>(i)]) >= 65520.0f)
          throw DataError("[{}] element {} is too large for fp16; choose bf16 or fp32", tensor.name, i);
      }
    }
    if (tensor.dtype != DType::kF32) {
      converted.resize(static_cast<size_t>(kChunk * 2));
      convert(converted.data(), tensor.dtype, bytes, DType::kF32, n);
      bytes = converted.data();
    }
    file.append(bytes, static_cast<size_t>(n * size_of(tensor.dtype)));
  }
  const uint64_t bytes = bytes_of(tensor);
  file.append(std::string(aligned(bytes) - bytes, '\0'));
}

}  // namespace

uint64_t bytes_of(const GgufFields& fields, const std::vector<GgufTensor>& tensors) {
  uint64_t bytes = head_of(fields, tensors).size();
  for (const GgufTensor& tensor : tensors) bytes += aligned(bytes_of(tensor));
  return bytes;
}

void write_gguf(FileSystem& files, const Path& path, const GgufFields& fields,
                const std::vector<GgufTensor>& tensors) {
  const Path target = std::filesystem::absolute(path).lexically_normal();
  files.create_directories(target.parent_path());
  checkpoint::check_space(files, target.parent_path(), bytes_of(fields, tensors), "the model");
  const Path temporary = target.string() + ".tmp-" + std::to_string(::getpid());
  try {
    auto file = files.open_for_writing(temporary);
    file->append(head_of(fields, tensors));
    std::vector<float> values;
    std::vector<std::byte> converted;
    for (const GgufTensor& tensor : tensors) append_tensor(*file, tensor, values, converted);
    file->sync();
    file->close();
    files.rename(temporary, target);
  } catch (...) {
    try {
      files.remove(temporary);
    } catch (const std::exception&) {  // the first error is the one to report
    }
    throw;
  }
  files.sync_directory(target.parent_path());
}

}  // namespace strata::interop
