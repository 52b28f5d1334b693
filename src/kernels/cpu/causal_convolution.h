// Causal convolution of each channel over a few rows (ops/causal_convolution). x, y, dy, dx and what precedes
// pieces have shape.dtype, all else is fp32, as is arithmetic. Rows are computed by themselves: the bits of a
// row depend neither on later rows nor on the number of threads. Nothing may alias.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

inline constexpr int64_t kMostTaps = 16;

struct ConvolutionShape {
  int64_t rows = 0;   // whole pieces
  int64_t piece = 1;  // rows of a piece
  int64_t channels = 0;
  int64_t taps = 1;  // at most kMostTaps
  bool silu = false;
  DType dtype = DType::kF32;
};
struct ConvolutionInputs {
  const void* x;             // [rows, channels]
  const float* weight;       // [channels, taps], the last of the row itself
  const float* bias;         // [channels] or nullptr
  const int32_t* positions;  // [rows]: rows of its document before each; none else is read
  const void* before;        // [rows / piece, taps - 1, channels], oldest first, or nullptr: zeros
};

// y[rows, channels] = f(convolution). Scratch: uninitialised.
int64_t convolution_scratch_bytes(const ConvolutionShape& shape);
void convolution_forward(const ConvolutionShape& shape, void* y, const ConvolutionInputs& in, void* scratch);
// dx, and dbefore unless it is nullptr, from dy. Scratch as above.
void convolution_backward_input(const ConvolutionShape& shape, void* dx, void* dbefore, const void* dy,
                                const ConvolutionInputs& in, void* scratch);
// dw[channels, taps], and dbias[channels] unless it is nullptr, = (accumulate ? itself : 0) + sums over rows.
int64_t convolution_weight_scratch_bytes(const ConvolutionShape& shape);
void convolution_backward_weight(const ConvolutionShape& shape, float* dw, float* dbias, const void* dy,
                                 const ConvolutionInputs& in, bool accumulate_w, bool accumulate_bias,
                                 void* scratch);

// Sequences of shape.piece rows, of which the first count[s] are new tokens after position[s] earlier ones.
struct CachedSequences {
  const int32_t *position, *slot, *count;  // [sequences]
};
// y as above, zeros after the new tokens. cache[entries, taps - 1, channels]: the last inputs of each entry,
// which are updated. in.positions and in.before are not read. Scratch as above.
void convolution_cached(const ConvolutionShape& shape, void* y, void* cache, const ConvolutionInputs& in,
                        const CachedSequences& sequences, void* scratch);

// Pieces of `piece_bytes` that end, or begin, with `part_bytes`: copies the ends of all to `parts`.
void take_piece_ends(int64_t pieces, int64_t piece_bytes, int64_t part_bytes, void* parts, const void* from);
// Writes zeros but for the ends, which are `parts`.
void put_piece_ends(int64_t pieces, int64_t piece_bytes, int64_t part_bytes, void* to, const void* parts);
// Each of `pieces` pieces of a sequence gets the bytes of the piece before it (back: after it), or zeros.
void shift_pieces(int64_t sequences, int64_t pieces, int64_t piece_bytes, bool back, void* to,
                  const void* from);

}  // namespace strata::cpu
