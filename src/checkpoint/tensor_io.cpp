#include "checkpoint/tensor_io.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"

namespace strata::checkpoint {
namespace {

// Two buffers of this size make one chunk of work.
constexpr int64_t kBufferBytes = kChunkBytes / 2;

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

// Moves elements [first, first + n) of a matrix of the file, [rows, columns] row-major, between `chunk`
// (where they are consecutive) and memory that holds the transpose. A tile goes through a small square that
// stays in the first cache, so that both sides are touched in runs of kTile.
template <typename Word, bool kToMemory>
void move_transposed(Word* chunk, Word* memory, int64_t rows, int64_t columns, int64_t first, int64_t n) {
  constexpr int64_t kTile = 32;
  Word tile[kTile][kTile];
  const int64_t last = first + n;
  const int64_t row_end = (last + columns - 1) / columns;
  for (int64_t row0 = first / columns; row0 < row_end; row0 += kTile) {
    const int64_t row1 = std::min(row_end, row0 + kTile);
    for (int64_t column0 = 0; column0 < columns; column0 += kTile) {
      const int64_t column1 = std::min(columns, column0 + kTile);
      // The first and the last row of the chunk may be cut.
      const auto along_columns = [&] {
        for (int64_t column = column0; column < column1; ++column) {
          const int64_t begin = row0 + (row0 * columns + column < first ? 1 : 0);
          const int64_t end = row1 - ((row1 - 1) * columns + column >= last ? 1 : 0);
          Word* run = memory + column * rows;
          for (int64_t row = begin; row < end; ++row) {
            Word& cell = tile[row - row0][column - column0];
            if constexpr (kToMemory) {
              run[row] = cell;
            } else {
              cell = run[row];
            }
          }
        }
      };
      const auto along_rows = [&] {
        for (int64_t row = row0; row < row1; ++row) {
          const int64_t begin = std::max(column0, first - row * columns);
          const int64_t end = std::min(column1, last - row * columns);
          if (begin >= end) continue;
          Word* run = chunk + (row * columns + begin - first);
          Word* cells = tile[row - row0] + (begin - column0);
          const size_t bytes = static_cast<size_t>(end - begin) * sizeof(Word);
          std::memcpy(kToMemory ? cells : run, kToMemory ? run : cells, bytes);
        }
      };
      if constexpr (kToMemory) {
        along_rows();
        along_columns();
      } else {
        along_columns();
        along_rows();
      }
    }
  }
}

template <bool kToMemory>
void move_transposed(void* chunk, void* memory, DType dtype, const Shape& shape, int64_t first, int64_t n) {
  const auto move = [&]<typename Word>(Word*) {
    move_transposed<Word, kToMemory>(static_cast<Word*>(chunk), static_cast<Word*>(memory), shape[0],
                                     shape[1], first, n);
  };
  switch (size_of(dtype)) {
    case 1:
      return move(static_cast<uint8_t*>(nullptr));
    case 2:
      return move(static_cast<uint16_t*>(nullptr));
    case 4:
      return move(static_cast<uint32_t*>(nullptr));
    default:
      return move(static_cast<uint64_t*>(nullptr));
  }
}

// The same for rows that memory holds part by part.
template <bool kToMemory>
void move_interleaved(void* chunk, void* memory, DType dtype, const Shape& shape,
                      const Interleave& interleave, int64_t first, int64_t n) {
  const int64_t columns = shape.elements() / shape[0];
  for (int64_t at = first; at < first + n;) {
    const RowRun run = run_at(interleave, shape[0], at / columns);
    const int64_t count = std::min(first + n, (run.file_row + run.rows) * columns) - at;
    auto* in_chunk = static_cast<std::byte*>(chunk) + (at - first) * size_of(dtype);
    auto* in_memory =
        static_cast<std::byte*>(memory) + (run.memory_row * columns + at % columns) * size_of(dtype);
    std::memcpy(kToMemory ? in_memory : in_chunk, kToMemory ? in_chunk : in_memory,
                static_cast<size_t>(count * size_of(dtype)));
    at += count;
  }
}

// Whether memory has another order than the file.
bool reorders(const TensorView& view) {
  return view.transposed || !view.interleave.none();
}

void check_view(const TensorView& view) {
  STRATA_CHECK(!view.transposed || view.shape.rank() == 2, "'{}' {} cannot be transposed", view.name,
               view.shape.str());
  STRATA_CHECK(view.interleave.none() ||
                   (!view.transposed && view.shape.rank() > 0 && divides(view.interleave, view.shape[0])),
               "'{}' {} cannot be interleaved by {} rows", view.name, view.shape.str(),
               view.interleave.group_rows());
  STRATA_CHECK(view.file == nullptr || (view.stored != nullptr && view.stored->dtype == view.memory_dtype &&
                                        view.stored->shape == view.shape && !reorders(view)),
               "'{}' is written from a tensor that is another", view.name);
  STRATA_CHECK(view.data != nullptr || view.file != nullptr || view.shape.elements() == 0,
               "'{}' has no memory", view.name);
}

// Elements [first, first + n) of the file's order, between `chunk` and the memory of a view that reorders.
template <bool kToMemory>
void move_reordered(void* chunk, void* memory, const TensorView& view, int64_t first, int64_t n) {
  if (view.transposed) {
    move_transposed<kToMemory>(chunk, memory, view.memory_dtype, view.shape, first, n);
  } else {
    move_interleaved<kToMemory>(chunk, memory, view.memory_dtype, view.shape, view.interleave, first, n);
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
uint64_t append_tensor(WritableFile& file, const TensorView& tensor, DType dtype,
                       std::vector<std::byte>& gathered, std::vector<std::byte>& converted) {
  Hasher hasher;
  const int64_t elements = tensor.shape.elements();
  const int64_t memory_size = size_of(tensor.memory_dtype);
  const bool converts = dtype != tensor.memory_dtype;
  const int64_t chunk = kBufferBytes / std::max(memory_size, size_of(dtype));
  if (reorders(tensor) || tensor.file != nullptr) gathered.resize(kBufferBytes);
  if (converts) converted.resize(kBufferBytes);
  for (int64_t first = 0; first < elements; first += chunk) {
    const int64_t n = std::min(chunk, elements - first);
    const void* bytes = gathered.data();
    if (tensor.file != nullptr) {
      tensor.file->read(*tensor.stored, static_cast<uint64_t>(first * memory_size), gathered.data(),
                        static_cast<size_t>(n * memory_size));
    } else if (reorders(tensor)) {
      move_reordered<false>(gathered.data(), const_cast<void*>(tensor.data), tensor, first, n);
    } else {
      bytes = static_cast<const std::byte*>(tensor.data) + first * memory_size;
    }
    if (converts) {
      convert_elements(converted.data(), dtype, bytes, tensor.memory_dtype, n);
      if (dtype == DType::kF16) check_range(tensor, first, bytes, converted.data(), n);
      bytes = converted.data();
    }
    const auto size = static_cast<size_t>(n * size_of(dtype));
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

// Reads a tensor's bytes chunk by chunk: into place(first byte, size), then done(place, first byte, size).
template <typename Place, typename Done>
uint64_t stream_tensor(const TensorFile& file, const TensorInfo& tensor, int64_t chunk_bytes, Place place,
                       Done done) {
  Hasher hasher;
  for (uint64_t first = 0; first < tensor.bytes; first += static_cast<uint64_t>(chunk_bytes)) {
    const size_t size = std::min(static_cast<uint64_t>(chunk_bytes), tensor.bytes - first);
    void* at = place(first);
    file.read(tensor, first, at, size);
    hasher.update(at, size);
    done(at, first, size);
  }
  return hasher.digest();
}

// Readers work on several tensors at once, each with its own buffers: all of them together take four chunks.
int64_t reader_buffer_bytes() {
  return std::max<int64_t>(int64_t{1} << 16,
                           std::min(kBufferBytes, 4 * kChunkBytes / (2 * compute_threads())) / 64 * 64);
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
  std::vector<std::byte> gathered, converted;
  for (const size_t i : plan.order) {
    stored.tensors[i] = {tensors[i].name,
                         append_tensor(*file, tensors[i], specs[i].dtype, gathered, converted)};
  }
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
  const int64_t widest = std::max(size_of(dtype), size_of(to.memory_dtype));
  const int64_t chunk = reader_buffer_bytes() / widest;  // elements
  const bool reordered = reorders(view), direct = !converts && !reordered;
  std::vector<std::byte> raw(direct ? 0 : static_cast<size_t>(chunk * size_of(dtype)));
  std::vector<std::byte> converted(
      converts && reordered ? static_cast<size_t>(chunk * size_of(to.memory_dtype)) : 0);
  auto* memory = static_cast<std::byte*>(to.data);

  return stream_tensor(
      file, from, chunk * size_of(dtype),
      [&](uint64_t first) -> void* { return direct ? memory + first : raw.data(); },
      [&](void* bytes, uint64_t first_byte, size_t size) {
        const int64_t first = static_cast<int64_t>(first_byte) / size_of(dtype);
        const int64_t n = static_cast<int64_t>(size) / size_of(dtype);
        if (check_finite) {
          const int64_t bad = first_not_finite(bytes, dtype, n);
          if (bad >= 0)
            throw DataError(
                "[{}] '{}' holds a NaN or an infinity at element {}; these weights cannot be used",
                file.path().string(), from.name, first + bad);
        }
        if (converts) {
          void* out = reordered ? converted.data() : memory + first * size_of(to.memory_dtype);
          convert_elements(out, to.memory_dtype, bytes, dtype, n);
          bytes = out;
        }
        if (reordered) move_reordered<true>(bytes, memory, view, first, n);
      });
}

TensorScan scan_tensor(const TensorFile& file, const TensorInfo& tensor) {
  TensorScan scan;
  const int64_t chunk = reader_buffer_bytes();
  std::vector<std::byte> buffer(std::min(tensor.bytes, static_cast<uint64_t>(chunk)));
  scan.checksum = stream_tensor(
      file, tensor, chunk, [&](uint64_t) { return buffer.data(); },
      [&](void* bytes, uint64_t first, size_t size) {
        if (!tensor.dtype || scan.first_not_finite >= 0) return;
        const int64_t width = size_of(*tensor.dtype);
        const int64_t bad = first_not_finite(bytes, *tensor.dtype, static_cast<int64_t>(size) / width);
        if (bad >= 0) scan.first_not_finite = static_cast<int64_t>(first) / width + bad;
      });
  return scan;
}

}  // namespace strata::checkpoint
