// A value or its parts times a number, and one row added to all.
#pragma once

#include <vector>

#include "ops/signatures.h"

namespace strata::ops {

struct ScaleAttrs {
  double factor = 1;
  bool operator==(const ScaleAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("factor", factor); }
};

// y = factor · x
struct Scale : Unary<ScaleAttrs> {
  static const graph::OpDef def;
};
graph::ValueId scale(graph::Graph& graph, graph::ValueId x, double factor);

struct ScalePartsAttrs {
  std::vector<double> factors;  // one for each segment of the columns
  bool operator==(const ScalePartsAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    for (const double factor : factors) to("factor", factor);
  }
};

// y = x with each segment of its columns times a factor
struct ScaleParts : Unary<ScalePartsAttrs> {
  static const graph::OpDef def;
};
// x itself if all factors are 1.
graph::ValueId scale_parts(graph::Graph& graph, graph::ValueId x, std::vector<double> factors);

struct AddRowAttrs {
  int64_t row = 0;
  bool operator==(const AddRowAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("row", row); }
};

// y = x + table[row], one row for all
struct AddRow {
  template <template <typename> class Of>
  struct In {
    Of<Act> x;      // [N, D]
    Of<F32> table;  // [R, D], or [D] for one row
    static constexpr std::string_view names = "x table";
  };
  template <template <typename> class Of>
  struct Out {
    Of<Act> y;  // [N, D]
    static constexpr std::string_view names = "y";
  };
  using Attrs = AddRowAttrs;
  static const graph::OpDef def;
};

struct AddRowGradAttrs {
  int64_t rows = 0;  // of the table
  int64_t row = 0;
  bool operator==(const AddRowGradAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("rows", rows);
    to("row", row);
  }
};

struct AddRowGrad {
  template <template <typename> class Of>
  struct In {
    Of<Act> dy;  // [N, D]
    static constexpr std::string_view names = "dy";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> dtable;  // [R, D], accumulates
    static constexpr std::string_view names = "dtable";
  };
  using Attrs = AddRowGradAttrs;
  static const graph::OpDef def;
};

}  // namespace strata::ops
