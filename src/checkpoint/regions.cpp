#include "checkpoint/regions.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/error.h"

namespace strata::checkpoint {
namespace {

constexpr int64_t kTile = 16;

// Unaligned access, since elements in files begin at any byte. Places and pitches are in elements.
template <typename Word>
Word load(const std::byte* from, int64_t place) {
  Word word;
  std::memcpy(&word, from + place * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
  return word;
}
template <typename Word>
void store(std::byte* to, int64_t place, Word word) {
  std::memcpy(to + place * static_cast<int64_t>(sizeof(Word)), &word, sizeof(Word));
}

// Copies a tile through a small buffer so that both sides are accessed in runs: if the number of columns is a
// power of two, the lines of a matrix would otherwise evict each other from the cache.
template <typename Word>
inline void transpose_tile(std::byte* out, const std::byte* in, int64_t out_pitch, int64_t in_pitch,
                           int64_t row_count, int64_t column_count) {
  Word tile[kTile][kTile];
  for (int64_t row = 0; row < row_count; ++row) {
    for (int64_t column = 0; column < column_count; ++column)
      tile[column][row] = load<Word>(in, row * in_pitch + column);
  }
  for (int64_t column = 0; column < column_count; ++column) {
    for (int64_t row = 0; row < row_count; ++row) store(out, column * out_pitch + row, tile[column][row]);
  }
}

// out[column][row] = in[row][column]; pitches are in elements.
template <typename Word>
void transpose(std::byte* out, int64_t out_pitch, const std::byte* in, int64_t in_pitch, int64_t rows,
               int64_t columns) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Word));
  for (int64_t row = 0; row < rows; row += kTile) {
    for (int64_t column = 0; column < columns; column += kTile) {
      std::byte* const to = out + (column * out_pitch + row) * kBytes;
      const std::byte* const from = in + (row * in_pitch + column) * kBytes;
      if (row + kTile <= rows && column + kTile <= columns) {  // unrolled by the compiler
        transpose_tile<Word>(to, from, out_pitch, in_pitch, kTile, kTile);
      } else {
        transpose_tile<Word>(to, from, out_pitch, in_pitch, std::min(kTile, rows - row),
                             std::min(kTile, columns - column));
      }
    }
  }
}

void transpose(void* out, int64_t out_pitch, const void* in, int64_t in_pitch, int64_t element_bytes,
               int64_t rows, int64_t columns) {
  const auto run = [&]<typename Word>(Word*) {
    transpose<Word>(static_cast<std::byte*>(out), out_pitch, static_cast<const std::byte*>(in), in_pitch,
                    rows, columns);
  };
  switch (element_bytes) {
    case 1:
      return run(static_cast<uint8_t*>(nullptr));
    case 2:
      return run(static_cast<uint16_t*>(nullptr));
    case 4:
      return run(static_cast<uint32_t*>(nullptr));
    default:
      return run(static_cast<uint64_t*>(nullptr));
  }
}

// Moves `rows` rows of `bytes` bytes from one pitch to another (both in bytes), in as few calls as possible.
void each_run(int64_t rows, int64_t bytes, int64_t from_pitch, int64_t to_pitch,
              FunctionRef<void(int64_t from, int64_t to, int64_t bytes)> move) {
  if (rows == 1 || (bytes == from_pitch && bytes == to_pitch)) return move(0, 0, rows * bytes);
  for (int64_t row = 0; row < rows; ++row) move(row * from_pitch, row * to_pitch, bytes);
}

}  // namespace

namespace {

// The parts must have every row of the tensor exactly once.
void check_parts(const TensorView& view) {
  int64_t rows = 0, stride = 0, elements = 0;
  std::vector<PartRows> parts;
  for (const TensorView& part : view.parts) {
    STRATA_CHECK(part.parts.empty() && !part.part.whole() && part.blocks == 0 && part.interleave.none() &&
                     part.transposed == view.transposed,
                 "a part of '{}' is not rows of one matrix", view.name);
    check_view(part);
    parts.push_back(part.part);
    stride = part.part.stride;
    elements += part.shape.elements();
  }
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const PartRows& part : parts) {
    STRATA_CHECK(part.first == rows && part.stride == stride, "row {} of each {} of '{}' is not in one part",
                 rows, stride, view.name);
    rows += part.count;
  }
  STRATA_CHECK(rows == stride && elements == view.shape.elements(), "the parts of '{}' are not {}", view.name,
               view.shape.str());
}

}  // namespace

void check_view(const TensorView& view) {
  STRATA_CHECK(view.stored_shape().elements() == view.shape.elements(), "'{}' {} is not {}", view.name,
               view.shape.str(), view.stored_shape().str());
  if (!view.parts.empty()) return check_parts(view);
  const int first = view.blocks > 0 ? 1 : 0;  // first dimension of a block
  STRATA_CHECK(view.memory_dtype != DType::kE2M1, "'{}' has elements of half a byte", view.name);
  STRATA_CHECK(view.blocks == 0 || (view.shape.rank() > 1 && view.shape[0] == view.blocks),
               "'{}' {} does not consist of {} blocks", view.name, view.shape.str(), view.blocks);
  STRATA_CHECK(!view.transposed || view.shape.rank() == first + 2, "'{}' {} cannot be transposed", view.name,
               view.shape.str());
  STRATA_CHECK(
      view.interleave.none() || (view.shape.rank() > first &&
                                 divides(view.interleave, view.shape[view.transposed ? first + 1 : first])),
      "'{}' {} cannot be interleaved by {} rows", view.name, view.shape.str(), view.interleave.group_rows());
  STRATA_CHECK(
      view.part.whole() || (view.shape.rank() > 0 && divides(view.part, view.shape[view.transposed ? 1 : 0])),
      "'{}' {} cannot have {} of each {} rows", view.name, view.shape.str(), view.part.count,
      view.part.stride);
  STRATA_CHECK(view.storage != nullptr, "'{}' has no storage", view.name);
}

FileOrder order_of(const TensorView& view) {
  const Shape& shape = view.shape;
  const int first = view.blocks > 0 ? 1 : 0;
  const int64_t blocks = std::max<int64_t>(view.blocks, 1);
  if (view.transposed)
    return {blocks * shape[first + 1], shape[first], true, view.interleave, blocks, view.part};
  const int64_t rows = shape.rank() > 0 ? blocks * shape[first] : 1;
  return {rows, rows > 0 ? shape.elements() / rows : 1, false, view.interleave, blocks, view.part};
}

TensorShard shard_of(const TensorView& view, int64_t rank) {
  return view.split ? view.split->shard(rank) : whole_shard(order_of(view));
}

RegionCopier::RegionCopier(const TensorView& view) : view_(view), element_bytes_(size_of(view.memory_dtype)) {
  check_view(view);
}

void RegionCopier::read(const Region& region, void* to, int64_t to_pitch) {
  const int64_t memory_pitch = region.memory_pitch * element_bytes_,
                in_memory = region.in_memory * element_bytes_;
  if (!view_.transposed) {
    each_run(region.rows, region.columns * element_bytes_, memory_pitch, to_pitch * element_bytes_,
             [&](int64_t from, int64_t at, int64_t bytes) {
               view_.storage->read(in_memory + from, static_cast<std::byte*>(to) + at, bytes);
             });
    return;
  }
  columns_.resize(static_cast<size_t>(region.rows * region.columns * element_bytes_));
  const int64_t run = region.rows * element_bytes_;
  each_run(region.columns, run, memory_pitch, run, [&](int64_t from, int64_t at, int64_t bytes) {
    view_.storage->read(in_memory + from, columns_.data() + at, bytes);
  });
  transpose(to, to_pitch, columns_.data(), region.rows, element_bytes_, region.columns, region.rows);
}

void RegionCopier::write(const Region& region, const void* from, int64_t from_pitch,
                         WritableStorage& storage) {
  const int64_t memory_pitch = region.memory_pitch * element_bytes_,
                in_memory = region.in_memory * element_bytes_;
  if (!view_.transposed) {
    each_run(region.rows, region.columns * element_bytes_, memory_pitch, from_pitch * element_bytes_,
             [&](int64_t at, int64_t of, int64_t bytes) {
               storage.write(in_memory + at, static_cast<const std::byte*>(from) + of, bytes);
             });
    return;
  }
  columns_.resize(static_cast<size_t>(region.rows * region.columns * element_bytes_));
  transpose(columns_.data(), region.rows, from, from_pitch, element_bytes_, region.rows, region.columns);
  const int64_t run = region.rows * element_bytes_;
  each_run(region.columns, run, memory_pitch, run, [&](int64_t at, int64_t of, int64_t bytes) {
    storage.write(in_memory + at, columns_.data() + of, bytes);
  });
}

}  // namespace strata::checkpoint
