// Fused projections whose rows a file keeps head by head: [groups][part 0, part 1, …], as the q; k; v of each
// head in GPT-NeoX, while memory holds [part][groups][rows of the part].
#pragma once

#include <cstdint>
#include <vector>

namespace strata {

struct Interleave {
  std::vector<int64_t> parts = {};  // rows of each part in one group; empty: memory's order is the file's

  bool none() const { return parts.empty(); }
  int64_t group_rows() const;
};

// The rows of a file's tensor that belong to a part of it: in each block of `stride` rows, `count` from row
// `first` on. Memory holds them one after another.
struct PartRows {
  int64_t first = 0, count = 0;
  int64_t stride = 0;  // 0: the tensor has no parts

  bool whole() const { return stride == 0; }
  // Rows of the tensor, if the part has `rows`.
  int64_t of_tensor(int64_t rows) const { return whole() ? rows : rows / count * stride; }
};

// A run of rows that is consecutive on both sides; of another part, if memory_row is negative.
struct RowRun {
  int64_t file_row = 0;
  int64_t memory_row = 0;
  int64_t rows = 0;
};

// The run that begins at `file_row` of a tensor of `rows` rows, a multiple of group_rows().
RowRun run_at(const Interleave& interleave, int64_t rows, int64_t file_row);
// The run that begins at `file_row` of a tensor, as a part that is not the whole tensor sees it.
RowRun run_at(const PartRows& part, int64_t file_row);

// Whether `rows` rows can be interleaved this way; every part has at least one.
bool divides(const Interleave& interleave, int64_t rows);
// Whether a part can have `rows` rows.
bool divides(const PartRows& part, int64_t rows);

}  // namespace strata
