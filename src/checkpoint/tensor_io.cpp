#include "checkpoint/tensor_io.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "checkpoint/elements.h"
#include "checkpoint/regions.h"

namespace strata::checkpoint {
namespace {

// A slice has at most three buffers: as stored, in the dtype of memory, and transposed.
constexpr int64_t kSliceBuffers = 3;
constexpr int64_t kSliceBytes = kChunkBytes / 4;

// Several readers run in parallel, each with its own buffers: together they take at most about four chunks.
int64_t reader_slice_bytes() {
  return std::max<int64_t>(
      int64_t{1} << 16,
      std::min(kSliceBytes, 4 * kChunkBytes / (kSliceBuffers * compute_threads())) / 64 * 64);
}

[[noreturn]] void not_as_written(const TensorFile& file, const TensorInfo& tensor, const Chunk& chunk) {
  throw DataError("[{}] '{}' (bytes {} to {}) does not match its checksum: the file is damaged",
                  file.path().string(), tensor.name, tensor.offset + chunk.first,
                  tensor.offset + chunk.first + chunk.bytes);
}

// A part of a tensor in a rank's memory.
struct PartInMemory {
  PartInMemory(const MutableTensorView& to, int rank)
      : view(to.view()),
        storage(*to.storage),
        order(order_of(view)),
        shard(shard_of(view, rank)),
        copier(view) {}
  PartInMemory(const PartInMemory&) = delete;
  PartInMemory& operator=(const PartInMemory&) = delete;

  const TensorView view;
  WritableStorage& storage;
  const FileOrder order;
  const TensorShard shard;
  RegionCopier copier;
};

// Reads one tensor from its file into a rank's memory, slice by slice.
class TensorReader {
 public:
  TensorReader(const TensorFile& file, const TensorInfo& from, const MutableTensorView& to,
               const ReadOptions& options)
      : file_(file),
        from_(from),
        options_(options),
        dtype_(*from.dtype),
        element_bytes_(size_of(dtype_)),
        most_(reader_slice_bytes() / std::max(element_bytes_, size_of(to.memory_dtype))) {
    for_each_part(to, [&](const MutableTensorView& part) { parts_.emplace_back(part, options.rank); });
  }

  void read() {
    const auto chunks = options_.checksums != nullptr
                            ? chunks_of(from_.offset, from_.bytes, options_.checksums->chunk_bytes)
                            : chunks_of(0, from_.bytes, kChunkBytes);
    if (options_.checksums != nullptr && options_.checksums->values.size() != chunks.size())
      not_as_written(file_, from_, {0, from_.bytes});
    for (size_t i = 0; i < chunks.size(); ++i) read(chunks[i], i);
  }

 private:
  void read(const Chunk& chunk, size_t index) {
    const auto width = static_cast<uint64_t>(element_bytes_);
    if (chunk.first % width != 0 || chunk.bytes % width != 0) not_as_written(file_, from_, chunk);
    const int64_t begin = static_cast<int64_t>(chunk.first) / element_bytes_;
    const int64_t end = begin + static_cast<int64_t>(chunk.bytes) / element_bytes_;
    const bool elsewhere = std::all_of(parts_.begin(), parts_.end(), [&](const PartInMemory& part) {
      return part.view.split && elements_in(part.order, part.shard, begin, end - begin) == 0;
    });
    if (elsewhere) return;
    Hasher hasher;
    for (int64_t first = begin; first < end; first += most_) {
      const int64_t count = std::min(most_, end - first);
      const auto size = static_cast<size_t>(count * element_bytes_);
      stored_.resize(std::max(stored_.size(), size));
      file_.read(from_, static_cast<uint64_t>(first * element_bytes_), stored_.data(), size);
      if (options_.checksums != nullptr) hasher.update(stored_.data(), size);
      if (options_.check_finite) check_finite(first, count);
      for (PartInMemory& part : parts_) {
        for_each_region(part.order, part.shard, first, count,
                        [&](const Region& region) { put(part, region, first); });
      }
    }
    if (options_.checksums != nullptr && hasher.digest() != options_.checksums->values[index])
      not_as_written(file_, from_, chunk);
  }

  void check_finite(int64_t first, int64_t count) const {
    const int64_t bad = first_not_finite(stored_.data(), dtype_, count);
    if (bad >= 0)
      throw DataError("[{}] '{}' has a NaN or infinity at element {}; these weights cannot be used",
                      file_.path().string(), from_.name, first + bad);
  }

  void put(PartInMemory& part, const Region& region, int64_t first) {
    const std::byte* in = stored_.data() + (region.in_file - first) * element_bytes_;
    const DType to = part.view.memory_dtype;
    if (dtype_ == to) return part.copier.write(region, in, region.file_pitch, part.storage);
    const int64_t memory_bytes = size_of(to);
    converted_.resize(
        std::max(converted_.size(), static_cast<size_t>(region.rows * region.columns * memory_bytes)));
    convert_rows(converted_.data(), to, region.columns, in, dtype_, region.file_pitch, region.rows,
                 region.columns);
    part.copier.write(region, converted_.data(), region.columns, part.storage);
  }

  const TensorFile& file_;
  const TensorInfo& from_;
  const ReadOptions& options_;
  DType dtype_;
  std::deque<PartInMemory> parts_;
  int64_t element_bytes_, most_;
  std::vector<std::byte> stored_, converted_;
};

}  // namespace

DType TensorView::stored_dtype(std::optional<DType> floats) const {
  return is_float(memory_dtype) && !keeps_dtype ? floats.value_or(memory_dtype) : memory_dtype;
}

TensorView MutableTensorView::view() const {
  TensorView view{name,       shape,  memory_dtype, storage, transposed,
                  interleave, blocks, split,        false,   file_shape};
  for (const MutableTensorView& each : parts) view.parts.push_back(each.view());
  view.part = part;
  return view;
}

bool is_convertible(DType from, DType to) {
  return from == to || (is_float(from) && is_float(to));
}

std::vector<Chunk> chunks_of(uint64_t offset, uint64_t bytes, uint64_t chunk_bytes) {
  if (chunk_bytes == 0) return {{0, bytes}};
  std::vector<Chunk> chunks;
  for (uint64_t first = 0; first < bytes;) {
    const uint64_t size = std::min(bytes - first, chunk_bytes - (offset + first) % chunk_bytes);
    chunks.push_back({first, size});
    first += size;
  }
  return chunks;
}

void check_written(const Path& path, uint64_t bytes) {
  const uint64_t found =
      ReadableFile(path).size();  // reopened, so that a network file system asks its server
  if (found != bytes)
    throw WorldError("[{}] has {} bytes, but {} were written; check the disk", path.string(), found, bytes);
}

StoredFile write_whole_file(FileSystem& files, const Path& path, std::string_view content) {
  auto file = files.open_for_writing(path);
  file->append(content);
  file->sync();
  file->close();
  check_written(path, content.size());
  return {path.filename().string(), content.size(), hash64(content), {}};
}

void read_tensor(const TensorFile& file, const TensorInfo& from, const MutableTensorView& to,
                 const ReadOptions& options) {
  check_view(to.view());
  if (!(from.shape == to.stored_shape()))
    throw DataError("[{}] '{}' has the shape {}, expected {}", file.path().string(), from.name,
                    from.shape.str(), to.stored_shape().str());
  if (!from.dtype || !is_convertible(*from.dtype, to.memory_dtype))
    throw DataError("[{}] '{}' is {}, which cannot be read as {}", file.path().string(), from.name,
                    from.dtype_name, name_of(to.memory_dtype));
  TensorReader(file, from, to, options).read();
}

TensorScan scan_tensor(const TensorFile& file, const TensorInfo& tensor, uint64_t chunk_bytes) {
  TensorScan scan;
  const auto most = static_cast<uint64_t>(reader_slice_bytes());
  std::vector<std::byte> bytes(std::min(tensor.bytes, most));
  for (const Chunk& chunk : chunks_of(tensor.offset, tensor.bytes, chunk_bytes)) {
    Hasher hasher;
    for (uint64_t first = chunk.first; first < chunk.first + chunk.bytes; first += most) {
      const size_t size = std::min(most, chunk.first + chunk.bytes - first);
      file.read(tensor, first, bytes.data(), size);
      hasher.update(bytes.data(), size);
      if (!tensor.dtype || is_code(*tensor.dtype) || scan.first_not_finite >= 0) continue;
      const int64_t width = size_of(*tensor.dtype);
      const int64_t bad = first_not_finite(bytes.data(), *tensor.dtype, static_cast<int64_t>(size) / width);
      if (bad >= 0) scan.first_not_finite = static_cast<int64_t>(first) / width + bad;
    }
    scan.checksums.push_back(hasher.digest());
  }
  return scan;
}

}  // namespace strata::checkpoint
