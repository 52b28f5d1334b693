#include "kernels/cpu/causal_convolution.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/causal_convolution_rows.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/causal_convolution.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/causal_convolution_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

int64_t LanesOfVectors() {
  return lanes();
}
void ForwardTile(const ConvolutionCall& call, void* y, const ConvolutionTile& tile) {
  const DType dtype = call.shape.dtype;
  const auto run =
      call.shape.silu
          ? by_dtype(dtype, forward_tile<float, true>, forward_tile<BF16, true>, forward_tile<F16, true>)
          : by_dtype(dtype, forward_tile<float, false>, forward_tile<BF16, false>, forward_tile<F16, false>);
  run(call, y, tile);
}
void BackwardTile(const ConvolutionCall& call, void* dx, void* dbefore, const void* dy,
                  const ConvolutionTile& tile) {
  const DType dtype = call.shape.dtype;
  const auto run = call.shape.silu ? by_dtype(dtype, backward_tile<float, true>, backward_tile<BF16, true>,
                                              backward_tile<F16, true>)
                                   : by_dtype(dtype, backward_tile<float, false>, backward_tile<BF16, false>,
                                              backward_tile<F16, false>);
  run(call, dx, dbefore, dy, tile);
}
void WeightTile(const ConvolutionCall& call, float* sums, const void* dy, const ConvolutionTile& tile) {
  const DType dtype = call.shape.dtype;
  const auto run =
      call.shape.silu
          ? by_dtype(dtype, weight_tile<float, true>, weight_tile<BF16, true>, weight_tile<F16, true>)
          : by_dtype(dtype, weight_tile<float, false>, weight_tile<BF16, false>, weight_tile<F16, false>);
  run(call, sums, dy, tile);
}
void CachedTile(const ConvolutionCall& call, void* y, void* cache, const CachedSequences& sequences,
                const ConvolutionTile& tile) {
  const DType dtype = call.shape.dtype;
  const auto run =
      call.shape.silu
          ? by_dtype(dtype, cached_tile<float, true>, cached_tile<BF16, true>, cached_tile<F16, true>)
          : by_dtype(dtype, cached_tile<float, false>, cached_tile<BF16, false>, cached_tile<F16, false>);
  run(call, y, cache, sequences, tile);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(LanesOfVectors);
HWY_EXPORT(ForwardTile);
HWY_EXPORT(BackwardTile);
HWY_EXPORT(WeightTile);
HWY_EXPORT(CachedTile);

namespace {

constexpr int64_t kChannelsPerTask = 1024;

int64_t tap_floats(const ConvolutionShape& s) {
  return (s.channels + kChannelAlignment - 1) / kChannelAlignment * kChannelAlignment * (s.taps + 1);
}
int64_t floats_of_call(const ConvolutionShape& s) {
  return 2 * tap_floats(s) + s.channels + kTileChannels;
}
TapFloats layout_of(const ConvolutionShape& s) {
  const int64_t lanes = HWY_DYNAMIC_DISPATCH(LanesOfVectors)();
  return {lanes, by_parity(s.dtype, lanes), s.taps};
}

// Writes the rows of floats that a call reads to the scratch.
ConvolutionCall prepare(const ConvolutionShape& s, const ConvolutionInputs& in, void* scratch,
                        const char* kernel) {
  require_activation_dtype(s.dtype, kernel);
  STRATA_CHECK(s.taps >= 1 && s.taps <= kMostTaps, "[causal_convolution] {} taps: expected 1 to {}", s.taps,
               kMostTaps);
  const bool bf16 = s.dtype == DType::kBF16;
  const float scale = bf16 && s.silu ? kBF16SiluScale : 1;
  // Stores of bf16 rely on NaN that bf16 has too.
  const auto prepared = [&](float value) {
    return bf16 && std::isnan(value) ? static_cast<float>(BF16(value)) : value;
  };
  auto* const unscaled = static_cast<float*>(scratch);
  float* const weights = unscaled + tap_floats(s);
  float* const zeros = weights + tap_floats(s);
  std::fill(unscaled, zeros + s.channels + kTileChannels, 0.0f);
  const TapFloats layout = layout_of(s);
  parallel_ranges(s.channels, kChannelsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t at = layout.at(c, 0);
      for (int64_t j = 0; j < s.taps; ++j) {
        const float weight = prepared(in.weight[c * s.taps + j]);
        unscaled[at + j * layout.lanes] = weight;
        weights[at + j * layout.lanes] = scale * weight;
      }
      if (in.bias != nullptr) weights[at + s.taps * layout.lanes] = scale * prepared(in.bias[c]);
    }
  });
  return {s, in, unscaled, weights, zeros};
}

// Calls run(tile) for tiles of at most `rows` rows that together cover [0, all) and all channels. Tiles of the
// same rows are consecutive.
template <typename Run>
void for_tiles(int64_t all, int64_t rows, int64_t channels, const Run& run) {
  const int64_t across = (channels + kTileChannels - 1) / kTileChannels, down = (all + rows - 1) / rows;
  parallel_for(across * down, [&](int64_t i) {
    const int64_t row = i / across * rows, channel = i % across * kTileChannels;
    run(ConvolutionTile{row, std::min(all, row + rows), channel,
                        std::min(channels, channel + kTileChannels)});
  });
}

// Enough rows that partial sums are little to read, compared with them.
RowBlocks weight_blocks(int64_t rows) {
  const int64_t per_block = std::max<int64_t>(128, (rows + 255) / 256);
  return {per_block, (rows + per_block - 1) / per_block};
}

}  // namespace

int64_t convolution_scratch_bytes(const ConvolutionShape& s) {
  return floats_of_call(s) * int64_t{sizeof(float)};
}

void convolution_forward(const ConvolutionShape& s, void* y, const ConvolutionInputs& in, void* scratch) {
  const ConvolutionCall call = prepare(s, in, scratch, "convolution_forward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ForwardTile);
  for_tiles(s.rows, kTileRows, s.channels, [&](const ConvolutionTile& tile) { kernel(call, y, tile); });
}

void convolution_backward_input(const ConvolutionShape& s, void* dx, void* dbefore, const void* dy,
                                const ConvolutionInputs& in, void* scratch) {
  const ConvolutionCall call = prepare(s, in, scratch, "convolution_backward_input");
  const auto kernel = HWY_DYNAMIC_DISPATCH(BackwardTile);
  // Rows of a tile are of one piece.
  const int64_t blocks = (s.piece + kTileRows - 1) / kTileRows;
  for_tiles(s.rows / s.piece * blocks, 1, s.channels, [&](ConvolutionTile tile) {
    const int64_t first = tile.begin / blocks * s.piece, row = tile.begin % blocks * kTileRows;
    tile.begin = first + row;
    tile.end = first + std::min(s.piece, row + kTileRows);
    kernel(call, dx, dbefore, dy, tile);
  });
}

// Scratch: that of a call, the sums, and the partial sums: TapFloats.
int64_t convolution_weight_scratch_bytes(const ConvolutionShape& s) {
  return (floats_of_call(s) + (weight_blocks(s.rows).blocks + 1) * tap_floats(s)) * int64_t{sizeof(float)};
}

void convolution_backward_weight(const ConvolutionShape& s, float* dw, float* dbias, const void* dy,
                                 const ConvolutionInputs& in, bool accumulate_w, bool accumulate_bias,
                                 void* scratch) {
  const ConvolutionCall call = prepare(s, in, scratch, "convolution_backward_weight");
  const auto kernel = HWY_DYNAMIC_DISPATCH(WeightTile);
  const int64_t width = tap_floats(s);
  float* const sums = static_cast<float*>(scratch) + floats_of_call(s);
  float* const partials = sums + width;
  const RowBlocks cut = weight_blocks(s.rows);
  for_tiles(s.rows, cut.rows_per_block, s.channels, [&](const ConvolutionTile& tile) {
    kernel(call, partials + tile.begin / cut.rows_per_block * width, dy, tile);
  });
  combine_partial_rows(sums, partials, cut.blocks, width, false);
  const TapFloats layout = layout_of(s);
  parallel_ranges(s.channels, kChannelsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const float* const sum = sums + layout.at(c, 0);
      for (int64_t j = 0; j < s.taps; ++j) {
        float& to = dw[c * s.taps + j];
        to = (accumulate_w ? to : 0.0f) + sum[j * layout.lanes];
      }
      if (dbias != nullptr) dbias[c] = (accumulate_bias ? dbias[c] : 0.0f) + sum[s.taps * layout.lanes];
    }
  });
}

void convolution_cached(const ConvolutionShape& s, void* y, void* cache, const ConvolutionInputs& in,
                        const CachedSequences& sequences, void* scratch) {
  const ConvolutionCall call = prepare(s, in, scratch, "convolution_cached");
  const auto kernel = HWY_DYNAMIC_DISPATCH(CachedTile);
  for_tiles(s.rows / s.piece, 1, s.channels,
            [&](const ConvolutionTile& tile) { kernel(call, y, cache, sequences, tile); });
}

void take_piece_ends(int64_t pieces, int64_t piece_bytes, int64_t part_bytes, void* parts, const void* from) {
  parallel_for(pieces, [&](int64_t i) {
    std::memcpy(static_cast<std::byte*>(parts) + i * part_bytes,
                static_cast<const std::byte*>(from) + (i + 1) * piece_bytes - part_bytes,
                static_cast<size_t>(part_bytes));
  });
}

void put_piece_ends(int64_t pieces, int64_t piece_bytes, int64_t part_bytes, void* to, const void* parts) {
  const auto rest = static_cast<size_t>(piece_bytes - part_bytes);
  parallel_for(pieces, [&](int64_t i) {
    auto* const piece = static_cast<std::byte*>(to) + i * piece_bytes;
    std::memset(piece, 0, rest);
    std::memcpy(piece + rest, static_cast<const std::byte*>(parts) + i * part_bytes,
                static_cast<size_t>(part_bytes));
  });
}

void shift_pieces(int64_t sequences, int64_t pieces, int64_t piece_bytes, bool back, void* to,
                  const void* from) {
  const auto bytes = static_cast<size_t>(piece_bytes);
  parallel_for(sequences * pieces, [&](int64_t i) {
    const int64_t piece = i % pieces, source = back ? i + 1 : i - 1;
    auto* const out = static_cast<std::byte*>(to) + i * piece_bytes;
    if (piece == (back ? pieces - 1 : 0)) {
      std::memset(out, 0, bytes);
    } else {
      std::memcpy(out, static_cast<const std::byte*>(from) + source * piece_bytes, bytes);
    }
  });
}

}  // namespace strata::cpu
#endif
