#include "quantize/quantizer.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "quantize/scale_vectors.h"
#include "quantize/subnormals.h"
#include "quantize/tiles.h"

namespace strata::quantize {
namespace {

using tiles::kTile;

// Codes of this size go past the caches: they would be gone from them before a matmul reads them.
constexpr int64_t kStreamedBytes = int64_t{8} << 20;
constexpr int64_t kElementsOfTask = 8 * kTile * kTile;
constexpr int64_t kMostBlocks = kTile * kTile / 16;  // in a tile, blocks of 1 x 16

void check(const Source& source) {
  STRATA_CHECK(source.dtype == DType::kF32 || source.dtype == DType::kBF16, "cannot quantize {}",
               name_of(source.dtype));
  STRATA_CHECK(source.rows >= 0 && source.columns >= 0 && source.stride >= source.columns,
               "rows {}, columns {}, stride {}", source.rows, source.columns, source.stride);
}

// The memory that a thread works in, from L1 to L2.
struct Workspace {
  tiles::Tile tile, transformed;
  alignas(64) float across[kMostBlocks];  // greatest magnitudes, as tiles::Greatest has them
  alignas(64) float down[kMostBlocks];
  alignas(64) float factors[kMostBlocks];
  uint32_t stored[kMostBlocks];
};

// The first element of a tile.
struct Place {
  int64_t row, column;
};

// Elements of a row or of a column whose greatest magnitude is wanted; 0: none.
struct Extents {
  int64_t across = 0, down = 0;
  tiles::Greatest in(Workspace& workspace) const {
    return {across, across == 0 ? nullptr : workspace.across, down, down == 0 ? nullptr : workspace.down};
  }
};

const std::byte* address_of(const Source& source, Place place) {
  const int64_t at = (place.row * source.stride + place.column) * size_of(source.dtype);
  return static_cast<const std::byte*>(source.data) + at;
}

void load_tile(const Source& source, Place place, Place next, const tiles::Greatest& greatest,
               tiles::Tile* tile) {
  tile->rows = std::min(kTile, source.rows - place.row);
  tile->columns = std::min(kTile, source.columns - place.column);
  tile->pitch = source.pitch == 0 ? source.columns : source.pitch;
  tile->places = source.places == nullptr ? nullptr : source.places + 2 * place.row;
  tile->runs = source.runs;
  tile->column = place.column;
  tile->element = source.first + (source.places == nullptr ? place.row * tile->pitch : 0) +
                  (source.runs.empty() ? place.column : 0);
  tile->next = address_of(source, next);
  tile->next_row_bytes = tile->columns * size_of(source.dtype);
  tile->next_stride_bytes = source.stride * size_of(source.dtype);
  tiles::load(address_of(source, place), source.dtype, source.stride, greatest, tile);
}

// The greatest magnitudes that a result needs of a tile before it rounds it; where scales do not follow from the tile,
// to know that its values are finite.
Extents extents_of(const Treatment& treatment, Along along) {
  const int64_t extent = std::min(treatment.rule.block().columns, kTile);
  return along == Along::kRows ? Extents{.across = extent} : Extents{.down = extent};
}

// The tile that a treatment rounds: the plain one, or a transformed copy, whose greatest magnitudes are found then.
const tiles::Tile& treated(const Treatment& treatment, Along along, const Extents& extents,
                           Workspace& workspace) {
  const tiles::Tile& plain = workspace.tile;
  if (!treatment.hadamard) return plain;
  tiles::Tile& copy = workspace.transformed;
  copy = plain;
  if (along == Along::kColumns) {
    tiles::hadamard_down(&copy, *treatment.hadamard);
  } else {
    tiles::hadamard_across(&copy, *treatment.hadamard);
  }
  tiles::find_greatest(copy, extents.in(workspace));
  return copy;
}

// Magnitudes compare as integers, NaN above infinity.
float greater(float a, float b) {
  return std::bit_cast<uint32_t>(a) < std::bit_cast<uint32_t>(b) ? b : a;
}

// One result while the tiles of the source pass.
class Result {
 public:
  // It asks for rows [ask_begin, ask_end) of the next tile while it rounds one.
  Result(const Source& source, const Request& request, Along along, int64_t ask_begin, int64_t ask_end)
      : rule_(request.treatment.rule),
        treatment_(request.treatment),
        to_(request.to),
        along_(along),
        layout_(along == Along::kRows ? layout_of(rule_, source.rows, source.columns)
                                      : layout_of(rule_, source.columns, source.rows)),
        extents_(extents_of(treatment_, along)),
        greatest_(request.greatest),
        found_(request.found),
        ask_begin_(ask_begin),
        ask_end_(ask_end) {
    STRATA_CHECK(layout_.greatest == 0 || greatest_ != nullptr, "the rule needs {} greatest magnitudes",
                 layout_.greatest);
    if (found_ == nullptr) return;
    STRATA_CHECK(rule_.block().columns == kWhole && !treatment_.hadamard,
                 "the scales of {} follow from the source", rule_.str());
  }

  // The greatest magnitudes that it needs of tiles as they are loaded.
  Extents extents() const { return treatment_.hadamard ? Extents{} : extents_; }

  void take(Place place, Workspace& workspace) {
    const tiles::Tile& tile = treated(treatment_, along_, extents_, workspace);
    const bool down = along_ == Along::kColumns;
    if (found_ != nullptr) note(down ? workspace.down : workspace.across, down ? tile.columns : tile.rows);
    // The tile's extents as the result has them.
    const int64_t row = down ? place.column : place.row, column = down ? place.row : place.column;
    const int64_t rows = down ? tile.columns : tile.rows, columns = down ? tile.rows : tile.columns;
    const BlockShape block{std::min(rule_.block().rows, kTile), std::min(rule_.block().columns, kTile)};
    const bool finite = find_factors(row, column, rows, columns, block, workspace);
    const tiles::Range range = !finite        ? tiles::Range::kUnknown
                               : rule_.fits() ? tiles::Range::kFits
                                              : tiles::Range::kFinite;
    const tiles::Conversion conversion{rule_.format(), rule_.divides(),
                                       treatment_.stochastic ? &*treatment_.stochastic : nullptr, range};
    const tiles::Output output{
        static_cast<uint8_t*>(to_.codes) + row * layout_.code_row_bytes + code_bytes(rule_.format(), column),
        layout_.code_row_bytes, layout_.code_bytes() >= kStreamedBytes, ask_begin_, ask_end_};
    if (down) {
      tiles::encode_down(tile, conversion, block.columns, workspace.factors, output);
    } else {
      tiles::encode_across(tile, conversion, block.rows, block.columns, workspace.factors, output);
    }
  }

 private:
  void note(const float* greatest, int64_t lines) {
    float most = 0;
    for (int64_t i = 0; i < lines; ++i) most = greater(most, greatest[i]);
    const std::lock_guard lock(mutex_);
    *found_ = greater(*found_, most);
  }

  float tensor_greatest() const { return rule_.needs() == ScaleRule::Needs::kTensor ? *greatest_ : 0; }

  // Writes the scales of the tile's blocks, and leaves what to apply in workspace.factors as encode_across() or
  // encode_down() read it. Returns whether all scaled values are known to be numbers.
  bool find_factors(int64_t row, int64_t column, int64_t rows, int64_t columns, BlockShape block,
                    Workspace& workspace) const {
    const bool down = along_ == Along::kColumns, given = rule_.block().columns == kWhole;
    const float* greatest = down ? workspace.down : workspace.across;
    // Places in these arrays from one row or column of the result's blocks to the next.
    const int64_t across = down ? kTile : 1, along = down ? 1 : kTile / block.columns;
    const int64_t blocks = (columns + block.columns - 1) / block.columns;
    const int64_t measured = (rows - 1) * along + (blocks - 1) * across + 1;
    bool finite = tiles::all_finite(greatest, measured);
    if (given) greatest = greatest_ + (rule_.block().rows == kWhole ? 0 : row);
    if (block.rows == 1) {
      const int64_t count = given ? rows : measured;
      bool applies = true;  // to all values
      if (rule_.is_nvfp4_by_row()) {
        applies = find_factors_of_rows(greatest, row, {rows, blocks}, {along, across}, workspace);
      } else {
        rule_.scales_of(greatest, count, tensor_greatest(), workspace.stored, workspace.factors);
        applies = rule_.needs() == ScaleRule::Needs::kNothing || tiles::all_finite(workspace.factors, count);
      }
      store_scales(row, column / block.columns, rows, blocks, along, across, workspace.stored);
      return finite && applies;
    }
    for (int64_t top = 0; top < rows; top += block.rows) {
      const int64_t end = std::min(top + block.rows, rows);
      for (int64_t j = 0; j < blocks; ++j) {
        float most = 0;
        for (int64_t i = top; i < (given ? top + 1 : end); ++i)
          most = greater(most, greatest[given ? 0 : i * along + j * across]);
        const ScaleRule::Scale scale = rule_.scale_of(most, tensor_greatest());
        store_scales((row + top) / block.rows, column / block.columns + j, 1, 1, 1, 1, &scale.stored);
        finite = finite && tiles::all_finite(&scale.applied, 1);
        if (!down) workspace.factors[top / block.rows * along + j] = scale.applied;
        for (int64_t i = top; down && i < end; ++i) workspace.factors[i + j * across] = scale.applied;
      }
    }
    return finite;
  }

  // The factors of `count` rows and blocks if rows have scales too; `step`: from one row, and from one block, to the
  // next in the arrays. Returns whether all are finite.
  bool find_factors_of_rows(const float* greatest, int64_t row, Place count, Place step,
                            Workspace& workspace) const {
    const bool down = along_ == Along::kColumns;
    bool finite = true;
    const int64_t lines = down ? count.column : count.row, length = down ? count.row : count.column;
    for (int64_t i = 0; i < lines; ++i) {
      const int64_t at = i * (down ? step.column : step.row);
      uint32_t* const stored = workspace.stored + at;
      float* const factors = workspace.factors + at;
      if (down) {
        rule_.scales_of_rows(greatest + at, greatest_ + row, length, stored, factors);
      } else {
        rule_.scales_of(greatest + at, length, greatest_[row + i], stored, factors);
      }
      finite = finite && tiles::all_finite(factors, length);
    }
    return finite;
  }

  // Of rows and columns of scales: stored[i * along + j * across]. Tiles share the scales of blocks that are larger than
  // they are, and all find the same: the first one stores it.
  void store_scales(int64_t row, int64_t column, int64_t rows, int64_t columns, int64_t along, int64_t across,
                    const uint32_t* stored) const {
    rows = std::min(rows, layout_.scale_rows - row);
    columns = std::min(columns, layout_.scale_columns - column);
    const auto copy_as = [&](auto type) {
      using Stored = decltype(type);
      constexpr auto kBytes = static_cast<int64_t>(sizeof(Stored));
      for (int64_t j = 0; j < columns; ++j) {
        std::byte* to = static_cast<std::byte*>(to_.scales);
        to += (row * layout_.scale_columns + column + j) * kBytes;
        for (int64_t i = 0; i < rows; ++i, to += layout_.scale_columns * kBytes) {
          const auto scale = static_cast<Stored>(stored[i * along + j * across]);
          std::memcpy(to, &scale, sizeof scale);
        }
      }
    };
    layout_.scale_type == ScaleType::kF32 ? copy_as(uint32_t{}) : copy_as(uint8_t{});
  }

  ScaleRule rule_;
  Treatment treatment_;
  Quantized to_;
  Along along_;
  QuantizedLayout layout_;
  Extents extents_;
  const float* greatest_;
  float* found_;
  int64_t ask_begin_, ask_end_;
  std::mutex mutex_;  // of *found_
};

// Calls each(place, workspace) for all tiles, the first rows first.
template <typename Each>
void for_each_tile(const Source& source, const Extents& extents, const Each& each) {
  const int64_t bands = (source.rows + kTile - 1) / kTile,
                tiles_of_band = (source.columns + kTile - 1) / kTile;
  constexpr int64_t kTilesOfTask = kElementsOfTask / (kTile * kTile);
  parallel_ranges(bands * tiles_of_band, kTilesOfTask, [&](int64_t begin, int64_t end) {
    const KeepSubnormals keep;
    Workspace workspace;  // on the stack, whose pages are there already
    for (int64_t i = begin; i < end; ++i) {
      const auto place_of = [&](int64_t tile) {
        return Place{tile / tiles_of_band * kTile, tile % tiles_of_band * kTile};
      };
      const Place place = place_of(i);
      load_tile(source, place, place_of(std::min(i + 1, end - 1)), extents.in(workspace), &workspace.tile);
      each(place, workspace);
    }
    hwy::FlushStream();  // of encode_across() and encode_down()
  });
}

}  // namespace

void find_greatest(const Source& source, const Treatment& treatment, Along along, float* greatest) {
  check(source);
  const ScaleRule::Needs needs = treatment.rule.needs();
  if (needs == ScaleRule::Needs::kNothing) return;
  const int64_t count = needs == ScaleRule::Needs::kTensor ? 1
                        : along == Along::kRows            ? source.rows
                                                           : source.columns;
  std::fill_n(greatest, count, 0.0f);
  const bool down = along == Along::kColumns;
  const Extents extents = down ? Extents{.down = kTile} : Extents{.across = kTile};
  std::mutex mutex;
  for_each_tile(source, treatment.hadamard ? Extents{} : extents, [&](Place place, Workspace& workspace) {
    const tiles::Tile& tile = treated(treatment, along, extents, workspace);
    const int64_t lines = down ? tile.columns : tile.rows, first = down ? place.column : place.row;
    const float* const found = down ? workspace.down : workspace.across;
    const std::lock_guard lock(mutex);
    for (int64_t i = 0; i < lines; ++i) {
      float& most = greatest[needs == ScaleRule::Needs::kTensor ? 0 : first + i];
      most = greater(most, found[i]);
    }
  });
}

void quantize(const Source& source, const std::optional<Request>& along_rows,
              const std::optional<Request>& along_columns) {
  check(source);
  std::optional<Result> rows, columns;
  const int64_t shared = along_rows && along_columns ? kTile / 2 : along_rows ? kTile : 0;
  if (along_rows) rows.emplace(source, *along_rows, Along::kRows, 0, shared);
  if (along_columns) columns.emplace(source, *along_columns, Along::kColumns, shared, kTile);
  const Extents extents{rows ? rows->extents().across : 0, columns ? columns->extents().down : 0};
  for_each_tile(source, extents, [&](Place place, Workspace& workspace) {
    if (rows) rows->take(place, workspace);
    if (columns) columns->take(place, workspace);
  });
}

void dequantize(const ScaleRule& rule, int64_t rows, int64_t columns, const void* codes, const void* scales,
                const float* greatest, float* out, int64_t stride) {
  const QuantizedLayout layout = layout_of(rule, rows, columns);
  STRATA_CHECK(rule.scale_type() != ScaleType::kE4M3 || greatest != nullptr || layout.greatest == 0,
               "nvfp4 needs the tensor's greatest magnitude");
  const bool by_row = rule.is_nvfp4_by_row();
  const float of_tensor = rule.scale_type() == ScaleType::kE4M3 && !by_row ? *greatest : 0;
  const int64_t width = std::min(rule.block().columns, columns);
  const auto decode_row = [&](int64_t row) {
    float* const to = out + row * stride;
    decode(rule.format(), static_cast<const uint8_t*>(codes) + row * layout.code_row_bytes, columns, to);
    const int64_t first = (rule.block().rows == kWhole ? 0 : row / rule.block().rows) * layout.scale_columns;
    for (int64_t begin = 0, at = first; begin < columns; begin += width, ++at) {
      uint32_t stored = 0;
      if (layout.scale_type == ScaleType::kF32) {
        std::memcpy(&stored, static_cast<const std::byte*>(scales) + at * 4, sizeof stored);
      } else {
        stored = static_cast<const uint8_t*>(scales)[at];
      }
      const float scale = rule.value_of(stored, by_row ? greatest[row] : of_tensor);
      for (int64_t i = begin; i < std::min(begin + width, columns); ++i) to[i] *= scale;
    }
  };
  parallel_ranges(rows, kElementsOfTask / std::max<int64_t>(1, columns), [&](int64_t begin, int64_t end) {
    const KeepSubnormals keep;
    for (int64_t row = begin; row < end; ++row) decode_row(row);
  });
}

}  // namespace strata::quantize
