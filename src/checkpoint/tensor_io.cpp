#include "checkpoint/tensor_io.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "checkpoint/pieces.h"

namespace strata::checkpoint {
namespace {

// A piece on its way has three buffers at most: as it is stored, as memory has it, and transposed.
constexpr int64_t kPieceBuffers = 3;
constexpr int64_t kPieceBytes = kChunkBytes / 4;

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF64;
}

// As convert(), but the pair that every checkpoint meets is done on bits: fast, and the same whether or not
// the calling thread flushes denormals.
void convert_elements(void* out, DType out_type, const void* in, DType in_type, int64_t n) {
  if (in_type == DType::kF32 && out_type == DType::kBF16) {
    const auto* from = static_cast<const float*>(in);
    auto* to = static_cast<BF16*>(out);
    for (int64_t i = 0; i < n; ++i) to[i] = BF16(from[i]);
  } else if (in_type == DType::kBF16 && out_type == DType::kF32) {
    const auto* from = static_cast<const uint16_t*>(in);
    auto* to = static_cast<uint32_t*>(out);
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<uint32_t>(from[i]) << 16;
  } else {
    convert(out, out_type, in, in_type, n);
  }
}

// Index of the first NaN or infinity, or -1.
int64_t first_not_finite(const void* data, DType dtype, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    bool bad = false;
    switch (dtype) {
      case DType::kF32:
        bad = (static_cast<const uint32_t*>(data)[i] & 0x7f800000u) == 0x7f800000u;
        break;
      case DType::kBF16:
        bad = (static_cast<const uint16_t*>(data)[i] & 0x7f80u) == 0x7f80u;
        break;
      case DType::kF16:
        bad = (static_cast<const uint16_t*>(data)[i] & 0x7c00u) == 0x7c00u;
        break;
      case DType::kF64:
        bad = !std::isfinite(static_cast<const double*>(data)[i]);
        break;
      default:
        return -1;
    }
    if (bad) return i;
  }
  return -1;
}

// Weights above 65,504 would become infinities without a word.
void check_range(const TensorView& tensor, int64_t first, const void* before, const void* after, int64_t n) {
  const int64_t bad = first_not_finite(after, DType::kF16, n);
  if (bad >= 0 && first_not_finite(before, tensor.memory_dtype, n) < 0)
    throw DataError("[{}] element {} is too large for fp16; choose bf16 or fp32", tensor.name, first + bad);
}

// Writes one tensor's bytes and returns their checksum.
uint64_t append_tensor(WritableFile& file, const TensorView& tensor, DType dtype) {
  Hasher hasher;
  const int64_t elements = tensor.shape.elements(), memory_bytes = size_of(tensor.memory_dtype);
  const bool converts = dtype != tensor.memory_dtype;
  const int64_t most = std::min(elements, kPieceBytes / std::max(memory_bytes, size_of(dtype)));
  PieceMover mover(tensor, most);
  std::vector<std::byte> as_held(static_cast<size_t>(most * memory_bytes));
  std::vector<std::byte> converted(converts ? static_cast<size_t>(most * size_of(dtype)) : 0);
  for (Piece piece; piece.first < elements; piece.first += piece.count) {
    piece = mover.piece_at(piece.first);
    mover.read(piece, as_held.data());
    if (converts) {
      convert_elements(converted.data(), dtype, as_held.data(), tensor.memory_dtype, piece.count);
      if (dtype == DType::kF16)
        check_range(tensor, piece.first, as_held.data(), converted.data(), piece.count);
    }
    const void* bytes = converts ? converted.data() : as_held.data();
    const auto size = static_cast<size_t>(piece.count * size_of(dtype));
    hasher.update(bytes, size);
    file.append(bytes, size);
  }
  return hasher.digest();
}

// Makes a file durable and sees whether all of it arrived.
void finish(WritableFile& file, const Path& path, uint64_t bytes) {
  file.sync();
  file.close();
  std::error_code error;
  const uint64_t found = std::filesystem::file_size(path, error);
  if (error || found != bytes)
    throw WorldError("[{}] has {} bytes after {} were written to it; check the disk", path.string(), found,
                     bytes);
}

// Readers work on several tensors at once, each with its own buffers: all of them together take four chunks.
int64_t reader_piece_bytes() {
  return std::max<int64_t>(
      int64_t{1} << 16,
      std::min(kPieceBytes, 4 * kChunkBytes / (kPieceBuffers * compute_threads())) / 64 * 64);
}

}  // namespace

DType stored_dtype(DType memory_dtype, std::optional<DType> wanted) {
  return is_float(memory_dtype) ? wanted.value_or(memory_dtype) : memory_dtype;
}

bool is_convertible(DType from, DType to) {
  return from == to || (is_float(from) && is_float(to));
}

StoredFile write_tensor_file(FileSystem& files, const Path& path, std::span<const TensorView> tensors,
                             std::optional<DType> float_dtype,
                             const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSpec> specs;
  for (const auto& tensor : tensors) {
    check_view(tensor);
    specs.push_back({tensor.name, stored_dtype(tensor.memory_dtype, float_dtype), tensor.shape});
  }
  const SafetensorsPlan plan = plan_safetensors(specs, metadata);
  StoredFile stored{path.filename().string(), plan.file_bytes, hash64(plan.head), {}};
  stored.tensors.resize(tensors.size());

  auto file = files.open_for_writing(path);
  file->append(plan.head);
  for (const size_t i : plan.order)
    stored.tensors[i] = {tensors[i].name, append_tensor(*file, tensors[i], specs[i].dtype)};
  finish(*file, path, plan.file_bytes);
  return stored;
}

StoredFile write_whole_file(FileSystem& files, const Path& path, std::string_view content) {
  auto file = files.open_for_writing(path);
  file->append(content);
  finish(*file, path, content.size());
  return {path.filename().string(), content.size(), hash64(content), {}};
}

uint64_t read_tensor(const TensorFile& file, const TensorInfo& from, const MutableTensorView& to,
                     bool check_finite) {
  const TensorView view = to.view();
  check_view(view);
  if (!(from.shape == to.shape))
    throw DataError("[{}] '{}' has the shape {}, expected {}", file.path().string(), from.name,
                    from.shape.str(), to.shape.str());
  if (!from.dtype || !is_convertible(*from.dtype, to.memory_dtype))
    throw DataError("[{}] '{}' is {}, which cannot be read as {}", file.path().string(), from.name,
                    from.dtype_name, name_of(to.memory_dtype));
  const DType dtype = *from.dtype;
  const bool converts = dtype != to.memory_dtype;
  const int64_t elements = to.shape.elements(), file_bytes = size_of(dtype);
  const int64_t memory_bytes = size_of(to.memory_dtype);
  const int64_t most = std::min(elements, reader_piece_bytes() / std::max(file_bytes, memory_bytes));
  PieceMover mover(view, most);
  std::vector<std::byte> as_stored(static_cast<size_t>(most * file_bytes));
  std::vector<std::byte> converted(converts ? static_cast<size_t>(most * memory_bytes) : 0);
  Hasher hasher;
  for (Piece piece; piece.first < elements; piece.first += piece.count) {
    piece = mover.piece_at(piece.first);
    const auto size = static_cast<size_t>(piece.count * file_bytes);
    file.read(from, static_cast<uint64_t>(piece.first * file_bytes), as_stored.data(), size);
    hasher.update(as_stored.data(), size);
    if (check_finite) {
      const int64_t bad = first_not_finite(as_stored.data(), dtype, piece.count);
      if (bad >= 0)
        throw DataError("[{}] '{}' holds a NaN or an infinity at element {}; these weights cannot be used",
                        file.path().string(), from.name, piece.first + bad);
    }
    if (converts) convert_elements(converted.data(), to.memory_dtype, as_stored.data(), dtype, piece.count);
    mover.write(piece, converts ? converted.data() : as_stored.data(), *to.storage);
  }
  return hasher.digest();
}

TensorScan scan_tensor(const TensorFile& file, const TensorInfo& tensor) {
  TensorScan scan;
  Hasher hasher;
  const auto most = static_cast<uint64_t>(reader_piece_bytes());
  std::vector<std::byte> bytes(std::min(tensor.bytes, most));
  for (uint64_t first = 0; first < tensor.bytes; first += most) {
    const size_t size = std::min(most, tensor.bytes - first);
    file.read(tensor, first, bytes.data(), size);
    hasher.update(bytes.data(), size);
    if (!tensor.dtype || scan.first_not_finite >= 0) continue;
    const int64_t width = size_of(*tensor.dtype);
    const int64_t bad = first_not_finite(bytes.data(), *tensor.dtype, static_cast<int64_t>(size) / width);
    if (bad >= 0) scan.first_not_finite = static_cast<int64_t>(first) / width + bad;
  }
  scan.checksum = hasher.digest();
  return scan;
}

}  // namespace strata::checkpoint
