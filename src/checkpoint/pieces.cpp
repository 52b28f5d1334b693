#include "checkpoint/pieces.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace strata::checkpoint {
namespace {

constexpr int64_t kTile = 16;

// A tile goes through a small square, so that both sides are touched in runs: lines of matrices whose columns
// are a power of two would drive one another out of the cache.
template <typename Word>
inline void transpose_tile(Word* out, const Word* in, int64_t rows, int64_t columns, int64_t row_count,
                           int64_t column_count) {
  Word tile[kTile][kTile];
  for (int64_t row = 0; row < row_count; ++row) {
    for (int64_t column = 0; column < column_count; ++column) tile[column][row] = in[row * columns + column];
  }
  for (int64_t column = 0; column < column_count; ++column) {
    for (int64_t row = 0; row < row_count; ++row) out[column * rows + row] = tile[column][row];
  }
}

// out[column][row] of in[row][column].
template <typename Word>
void transpose(Word* out, const Word* in, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; row += kTile) {
    for (int64_t column = 0; column < columns; column += kTile) {
      Word* const to = out + column * rows + row;
      const Word* const from = in + row * columns + column;
      if (row + kTile <= rows && column + kTile <= columns) {  // unrolled by the compiler
        transpose_tile(to, from, rows, columns, kTile, kTile);
      } else {
        transpose_tile(to, from, rows, columns, std::min(kTile, rows - row),
                       std::min(kTile, columns - column));
      }
    }
  }
}

void transpose(void* out, const void* in, int64_t element_bytes, int64_t rows, int64_t columns) {
  const auto run = [&]<typename Word>(Word*) {
    transpose(static_cast<Word*>(out), static_cast<const Word*>(in), rows, columns);
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

// A piece of a transposed tensor: a rectangle of it.
struct Rectangle {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
};

Rectangle rectangle_of(const Shape& shape, const Piece& piece) {
  const int64_t columns = shape[1];
  const int64_t rows = std::max<int64_t>(1, piece.count / columns);
  return {piece.first / columns, rows, piece.first % columns, piece.count / rows};
}

}  // namespace

void check_view(const TensorView& view) {
  STRATA_CHECK(!view.transposed || view.shape.rank() == 2, "'{}' {} cannot be transposed", view.name,
               view.shape.str());
  STRATA_CHECK(view.interleave.none() ||
                   (!view.transposed && view.shape.rank() > 0 && divides(view.interleave, view.shape[0])),
               "'{}' {} cannot be interleaved by {} rows", view.name, view.shape.str(),
               view.interleave.group_rows());
  STRATA_CHECK(view.storage != nullptr, "'{}' lies nowhere", view.name);
}

PieceMover::PieceMover(const TensorView& view, int64_t most)
    : view_(view), most_(most), element_bytes_(size_of(view.memory_dtype)) {
  check_view(view);
  if (view.transposed)
    columns_.resize(static_cast<size_t>(std::min(most, view.shape.elements()) * element_bytes_));
}

Piece PieceMover::piece_at(int64_t first) const {
  const int64_t rest = view_.shape.elements() - first;
  if (!view_.transposed || rest == 0) return {first, std::min(most_, rest)};
  // Whole rows, or a part of one.
  const int64_t columns = view_.shape[1];
  if (columns > most_) return {first, std::min(most_, columns - first % columns)};
  return {first, std::min(most_ / columns * columns, rest)};
}

// The runs of a piece that lie side by side in the storage as well. Of a transposed tensor they are in the
// order of columns_, of any other in that of the piece.
void PieceMover::move_runs(const Piece& piece, FunctionRef<void(int64_t, int64_t, int64_t)> move) {
  if (view_.transposed) {
    const Rectangle at = rectangle_of(view_.shape, piece);
    const int64_t rows = view_.shape[0];
    if (at.rows == rows)
      return move(at.column * rows * element_bytes_, 0, at.columns * rows * element_bytes_);
    for (int64_t i = 0; i < at.columns; ++i)
      move(((at.column + i) * rows + at.row) * element_bytes_, i * at.rows * element_bytes_,
           at.rows * element_bytes_);
  } else if (!view_.interleave.none()) {
    const int64_t columns = view_.shape.elements() / view_.shape[0];
    for (int64_t done = 0; done < piece.count;) {
      const int64_t first = piece.first + done;
      const RowRun run = run_at(view_.interleave, view_.shape[0], first / columns);
      const int64_t count = std::min(piece.count - done, (run.file_row + run.rows) * columns - first);
      move((run.memory_row * columns + first % columns) * element_bytes_, done * element_bytes_,
           count * element_bytes_);
      done += count;
    }
  } else {
    move(piece.first * element_bytes_, 0, piece.count * element_bytes_);
  }
}

void PieceMover::read(const Piece& piece, void* to) {
  if (piece.count == 0) return;
  auto* const out = view_.transposed ? columns_.data() : static_cast<std::byte*>(to);
  move_runs(piece, [&](int64_t offset, int64_t in_piece, int64_t bytes) {
    view_.storage->read(offset, out + in_piece, bytes);
  });
  if (!view_.transposed) return;
  const Rectangle at = rectangle_of(view_.shape, piece);
  transpose(to, columns_.data(), element_bytes_, at.columns, at.rows);
}

void PieceMover::write(const Piece& piece, const void* from, WritableStorage& storage) {
  if (piece.count == 0) return;
  if (view_.transposed) {
    const Rectangle at = rectangle_of(view_.shape, piece);
    transpose(columns_.data(), from, element_bytes_, at.rows, at.columns);
    from = columns_.data();
  }
  move_runs(piece, [&](int64_t offset, int64_t in_piece, int64_t bytes) {
    storage.write(offset, static_cast<const std::byte*>(from) + in_piece, bytes);
  });
}

}  // namespace strata::checkpoint
