// A vector of equal numbers, made once before the first step: the weight of a norm that has none.
#pragma once

#include <string>

#include "ops/signatures.h"

namespace strata::ops {

struct ConstantAttrs {
  int64_t elements = 0;
  double number = 0;
  bool operator==(const ConstantAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("elements", elements);
    to("number", number);
  }
};

struct Constant {
  template <template <typename> class Of>
  struct In {
    static constexpr std::string_view names = "";
  };
  template <template <typename> class Of>
  struct Out {
    Of<F32> values;  // [elements]
    static constexpr std::string_view names = "values";
  };
  using Attrs = ConstantAttrs;
  static const graph::OpDef def;
};
graph::ValueId constant(graph::Graph& graph, const std::string& name, int64_t elements, double number);

}  // namespace strata::ops
