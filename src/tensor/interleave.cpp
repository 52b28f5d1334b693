#include "tensor/interleave.h"

#include <algorithm>
#include <numeric>

namespace strata {

int64_t Interleave::group_rows() const {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0});
}

RowRun run_at(const Interleave& interleave, int64_t rows, int64_t file_row) {
  if (interleave.none()) return {file_row, file_row, rows - file_row};
  const int64_t group_rows = interleave.group_rows();
  const int64_t groups = rows / group_rows;
  const int64_t group = file_row / group_rows;
  int64_t before = 0;  // rows of a group that are in earlier parts
  size_t part = 0;
  while (file_row % group_rows - before >= interleave.parts[part]) before += interleave.parts[part++];
  const int64_t within = file_row % group_rows - before;
  return {file_row, before * groups + group * interleave.parts[part] + within,
          interleave.parts[part] - within};
}

RowRun run_at(const PartRows& part, int64_t file_row) {
  const int64_t block = file_row / part.stride, within = file_row % part.stride - part.first;
  if (within < 0) return {file_row, -1, -within};
  if (within >= part.count) return {file_row, -1, part.stride - part.first - within};
  return {file_row, block * part.count + within, part.count - within};
}

bool divides(const Interleave& interleave, int64_t rows) {
  const auto& parts = interleave.parts;
  return interleave.none() ||
         (std::all_of(parts.begin(), parts.end(), [](int64_t part) { return part > 0; }) &&
          rows % interleave.group_rows() == 0);
}

bool divides(const PartRows& part, int64_t rows) {
  return part.whole() || (part.first >= 0 && part.count > 0 && part.first + part.count <= part.stride &&
                          rows % part.count == 0);
}

}  // namespace strata
