// How memory holds a parameter and the moments of its optimizer: in fp32, or in fewer bits.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/shard.h"
#include "tensor/dtype.h"

namespace strata::optim {

// How a new weight, which is computed in fp32, becomes bf16.
enum class Rounding : uint8_t {
  kStochastic,  // up with the probability of the part cut off, so that the mean is the weight
  kKahan,       // to nearest; a state in bf16, "compensation", has the rest, which is added next time
  kNearest,     // changes below half a unit in the last place are lost
};
std::string_view name_of(Rounding rounding);  // "stochastic", …

struct Storage {
  DType weights = DType::kF32;  // or kBF16, without a master in fp32
  Rounding rounding = Rounding::kStochastic;
  DType moments = DType::kF32;  // or kBF16, to nearest; or kE4M3, with a scale for each kMomentBlock
  uint64_t seed = 0;            // of stochastic rounding

  bool is_plain() const { return weights == DType::kF32 && moments == DType::kF32; }
  bool is_stochastic() const { return weights == DType::kBF16 && rounding == Rounding::kStochastic; }
  bool operator==(const Storage&) const = default;
};

// torchao.optim.AdamWFp8 has the same two. Elements of a block, in the order of memory:
inline constexpr int64_t kMomentBlock = 256;
// and tensors below have moments in fp32.
inline constexpr int64_t kLeastMomentsInBlocks = 4096;

// The elements of a parameter that each rank holds, by their places in the whole: for random numbers that do
// not depend on how ranks share it.
struct HeldElements {
  // Those along one dimension, by a rank's index on the axes that cut it, the last of them fastest.
  struct Dimension {
    std::vector<graph::Axis> axes = {};
    std::vector<int64_t> ranks = {};  // on each
    std::vector<std::vector<graph::HeldSpan>> spans = {};
    const std::vector<graph::HeldSpan>& on(const graph::Coordinates& rank) const {
      size_t index = 0;
      for (size_t i = 0; i < axes.size(); ++i)
        index = index * static_cast<size_t>(ranks[i]) + static_cast<size_t>(rank[axes[i]]);
      return spans[index];
    }
  };
  Dimension rows, columns;
  int64_t whole_columns = 0;
};

// `value` may have been localized or not. All dimensions after the first are columns.
HeldElements held_elements(const graph::Value& value, const graph::Mesh& mesh);

// A range of elements in a rank's memory whose places in the whole are consecutive; `place` -1: padding.
struct PlacedRun {
  int64_t at = 0, count = 0, place = -1;
};
// The one that begins at element `at` of a rank's memory, of rows of `width` elements, and ends before `end`.
PlacedRun placed_run(const std::vector<graph::HeldSpan>& rows, const std::vector<graph::HeldSpan>& columns,
                     int64_t width, int64_t whole_columns, int64_t at, int64_t end);

}  // namespace strata::optim
