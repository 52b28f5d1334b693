// Quantised tensors as values of a program: codes of at most 8 bits, and the scales that turn them back into numbers.
// quantize/ defines both. Each is an ordinary value, with a separate placement.
//
// The matmul that sums over a matrix's columns reads its codes along rows; the one that sums over its rows reads those
// along columns, which are the codes of the transposed matrix, rounded from the same source.
#pragma once

#include <optional>

#include "graph/shard.h"
#include "ops/signatures.h"
#include "quantize/hadamard.h"
#include "quantize/scale_rule.h"

namespace strata::ops {

// How a tensor is quantised along its rows, along its columns, or both.
struct QuantizeAttrs {
  std::optional<quantize::ScaleRule> along_rows = {}, along_columns = {};
  // Of the result along columns: every 16 elements pass a Hadamard transform first (quantize/hadamard.h).
  bool transforms_columns = false;
  // Rounds stochastically, with streams of random numbers 2 · stream and 2 · stream + 1 along rows and columns. The bits
  // follow from the places of rows in the data, so that they do not depend on ranks and micro-batches.
  bool stochastic = false;
  int64_t stream = 0;
  // How ranks cut the columns of x, after localize(): a column's random bits follow from its number in the whole.
  std::optional<graph::Cut> columns = {};
  graph::Axis axis = graph::Axis::kTensor;  // that they are cut along
  // Where scales do not follow from x itself: ranks that each give the greatest magnitude of their shard of x,
  // concatenated; 1 after localize(). 0: none does.
  int64_t greatest_parts = 0;
  bool operator==(const QuantizeAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

// Cuts of x over which a greatest magnitude is still to be taken: ranks that each have one, concatenated along the
// first dimension of the results; 1 after localize().
struct GreatestAttrs {
  std::optional<quantize::ScaleRule> along_rows = {}, along_columns = {};
  bool transforms_columns = false;
  int64_t row_parts = 1, column_parts = 1;
  bool operator==(const GreatestAttrs&) const = default;
  void describe(graph::AttributeText& to) const;
};

// The greatest magnitudes that a rule needs: one, or one a row of the result. NaN wins over every number.
struct GreatestMagnitudes {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;  // [N, K]
    static constexpr std::string_view names = "x";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Optional<F32>> of_rows;     // [row_parts, 1] or [row_parts, N]
    Of<Optional<F32>> of_columns;  // [column_parts, 1] or [column_parts, K]
    static constexpr std::string_view names = "of_rows of_columns";
  };
  using Attrs = GreatestAttrs;
  static const graph::OpDef def;
};

// The greatest of each column, NaN if there is one: what ranks have found, after it is gathered.
struct GreatestOfRanks {
  template <template <typename> class Of>
  struct In {
    Of<F32> found;  // [ranks, n]
    static constexpr std::string_view names = "found";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> greatest;  // [1, n]
    static constexpr std::string_view names = "greatest";
  };
  using Attrs = graph::NoAttrs;
  static const graph::OpDef def;
};

// Scale shapes: quantize::layout_of(). Of a delayed rule's history (quantize/delayed.h), [1, 1 + steps], the first number
// is read: the greatest magnitude in force.
struct Quantize {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;  // [N, K]
    Of<Optional<F32>> row_greatest =
        {};  // [1, 1] or [1, N], where the rule needs it; a history, if it is delayed
    Of<Optional<F32>> column_greatest = {};  // [1, 1] or [1, K]
    Of<Optional<I32>> places = {};           // [N, 2], as SamplePlaces makes them; for stochastic rounding
    Of<Optional<I32>> rank = {};             // [axes], if an axis cuts the columns that are rounded so
    static constexpr std::string_view names = "x row_greatest column_greatest places rank";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Optional<Any>> row_codes;      // [N, K]
    Of<Optional<Any>> row_scales;     //
    Of<Optional<Any>> column_codes;   // [K, N]
    Of<Optional<Any>> column_scales;  //
    Of<Optional<F32>> greatest = {};  // [greatest_parts, 1]; accumulates by taking the greater one
    static constexpr std::string_view names = "row_codes row_scales column_codes column_scales greatest";
  };
  using Attrs = QuantizeAttrs;
  static const graph::OpDef def;
};

// The signs of the transform: one vector for all tensors and steps (NVIDIA 2025, appendix C).
quantize::HadamardSigns hadamard_signs();
// The random bits of a result.
quantize::StochasticBits stochastic_bits(const QuantizeAttrs& attrs, bool along_columns);

// The columns of x that a rank has, by number in the whole, and how many the whole has. Without a cut: all.
struct HeldColumns {
  std::vector<quantize::ColumnRun> runs = {};
  int64_t all = 0;
};
HeldColumns held_columns(const QuantizeAttrs& attrs, int64_t columns, int64_t rank);

// The attributes on a rank of a mesh that cuts the columns of x, for stochastic rounding.
void cut_columns(QuantizeAttrs& attrs, const graph::Value& x, const graph::Mesh& mesh);

// Where a cut of a matrix along dimension `dim` leaves its scales: cut likewise, or whole, if a block is as long as the
// matrix there.
graph::Placement placement_of_scales(const quantize::ScaleRule& rule, int dim);

}  // namespace strata::ops
