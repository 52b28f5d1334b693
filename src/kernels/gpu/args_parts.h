// Parameters of the GPU kernels that move rows (args.h).
#pragma once

#include <cstdint>

namespace strata::gpu {

// One of the consecutive parts of the rows of a whole. Widths, strides and places count units of 2, 4 or 16 bytes.
struct RowPart {
  void* at;
  int64_t stride;
  int32_t first, width;  // first: where it begins in a row of the whole
};
constexpr int32_t kMostRowParts = 3;
// Row r of the whole is row entries[s] · capacity + position[s] + r % length, s = r / length; without entries it is r.
struct RowPartsArgs {
  void* whole;
  int64_t stride;
  RowPart parts[kMostRowParts];
  int32_t count, split;  // split: from the whole to the parts, else from the parts to the whole
  const int32_t* entries;
  const int32_t* position;
  int32_t length, capacity;
};

// A rank's share of one part of rows: `share` units of each of `rows` rows, from unit first + number · share on. The number is
// the rank's place on the axis, counted from the end if `mirrored`. The part has `size` units; a share that goes beyond them
// ends in zeros.
struct TakeShareArgs {
  void* out;
  const void* x;
  const int32_t* rank;  // the per-rank constants; entry `axis` is read if ranks > 1
  int64_t rows, share, size, first, stride, out_first, out_stride;
  int32_t ranks, axis, mirrored;
};
// start[i] = (place · parts + i) · rows
struct VocabStartArgs {
  int32_t* start;
  const int32_t* rank;
  int32_t parts, rows, ranks, axis;
};

}  // namespace strata::gpu
