// The cases of an op (ops/op_cases.h), with its operands by name: src/ops/NAME/cases.cpp defines them.
//
//   template <>
//   void cases<ops::Clamp>(Cases& to) {
//     for (const Sizes& s : Cases::sizes())
//       to.add<ops::Clamp>("clamp" + s.name, {.x = between_tenths({s.rows, s.width})}, {0.6}, {.ragged =
//       s.ragged});
//     to.untimed<ops::Clamp>("one pass over memory, as activation is");
//   }
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/typed_op.h"
#include "ops/case_operands.h"
#include "ops/op_cases.h"

namespace strata::device {

// Absent unless it is given.
struct OptionalOperand : Operand {
  OptionalOperand() : Operand{.absent = true} {}
  OptionalOperand(Operand operand) : Operand(std::move(operand)) {}
};
template <typename Kind>
using Sample =
    graph::detail::OneOrMany<std::conditional_t<graph::KindOf<Kind>::optional, OptionalOperand, Operand>,
                             graph::KindOf<Kind>::many>;

// Sizes of element-wise ops and matmuls: `rows` tokens of `width` columns, and of `outputs` columns after a
// matmul.
struct Sizes {
  std::string name;  // follows that of the case
  int64_t rows, width, outputs;
  bool ragged;
};

// The name of an output of the op.
template <typename Op>
struct OutputName {
  int position;
  consteval OutputName(const char* name) : position(graph::position_of<Op::template Out>(name)) {
    if (position < 0) throw "the op has no such output";
  }
};

// In the place of an input that is absent the value of another one.
template <typename Op>
Operand same_as(graph::InputName<Op> other) {
  return op_rows::same_as(other.position);
}

// As OpCase has them.
template <typename Op>
struct CaseOptions {
  // For ops that write over their inputs: the output and the input that it overwrites.
  std::vector<graph::Over<Op>> updates = {};
  double tolerance = 2e-5;
  bool replicated_only = false;
  bool ragged = false;
  std::vector<OutputName<Op>> opaque = {};
  std::vector<OutputName<Op>> left_out = {};
  // nullopt: the first output.
  std::optional<std::vector<OutputName<Op>>> differentiable = {};
  bool encoding = false;
  bool adds = false;
};

class Cases {
 public:
  // One that placements divide, a ragged one, and one of a single column.
  static const std::vector<Sizes>& sizes();

  template <typename Op>
  void add(std::string name, typename Op::template In<Sample> in, typename Op::Attrs attrs = {},
           const CaseOptions<Op>& options = {}) {
    cases.push_back(made<Op>(std::move(name), std::move(in), std::move(attrs), options));
  }
  // A size at which the op's rate is measured.
  template <typename Op>
  void time(typename Op::template In<Sample> in, typename Op::Attrs attrs = {},
            const CaseOptions<Op>& options = {}) {
    timed.push_back(made<Op>(std::string(Op::def.name), std::move(in), std::move(attrs), options));
  }
  // No rate of the op is measured.
  template <typename Op>
  void untimed(std::string_view because) {
    reasons.push_back({&Op::def, because});
  }

  std::vector<OpCase> cases, timed;
  std::vector<UntimedOp> reasons;

 private:
  template <typename Op>
  static std::vector<int> positions(const std::vector<OutputName<Op>>& names) {
    std::vector<int> list;
    for (const OutputName<Op>& name : names) list.push_back(name.position);
    return list;
  }
  // OpCase::updates of a node with `operands` inputs.
  template <typename Op>
  static std::vector<int> updates(const std::vector<graph::Over<Op>>& overs, size_t operands) {
    std::vector<int> list;
    typename Op::template Out<graph::Declared> out{};
    typename Op::template In<graph::Declared> in{};
    graph::visit(out, 0, [&](auto&, auto kind, std::string_view name, size_t, size_t) {
      const size_t before = list.size();
      for (const graph::Over<Op>& over : overs) {
        if (over.out != graph::position_of<Op::template Out>(name)) continue;
        graph::visit(in, operands, [&](auto&, auto, std::string_view input, size_t first, size_t count) {
          if (over.in != graph::position_of<Op::template In>(input)) return;
          for (size_t i = first; i < first + count; ++i) list.push_back(static_cast<int>(i));
        });
      }
      if (list.size() == before && !kind.many) list.push_back(-1);
    });
    return list;
  }
  template <typename Op>
  static OpCase made(const std::string& name, typename Op::template In<Sample> in, typename Op::Attrs attrs,
                     const CaseOptions<Op>& options) {
    OpCase made{.name = name,
                .op = &Op::def,
                .tolerance = options.tolerance,
                .replicated_only = options.replicated_only,
                .ragged = options.ragged,
                .opaque = positions<Op>(options.opaque),
                .left_out = positions<Op>(options.left_out),
                .encoding = options.encoding,
                .adds = options.adds};
    graph::visit(in, 0, [&](auto& member, auto kind, std::string_view, size_t, size_t) {
      if constexpr (kind.many) {
        for (Operand& operand : member) made.inputs.push_back(std::move(operand));
      } else {
        made.inputs.push_back(std::move(member));
      }
    });
    if constexpr (!std::is_same_v<typename Op::Attrs, graph::NoAttrs>) made.attrs = std::move(attrs);
    if (!options.updates.empty()) made.updates = updates<Op>(options.updates, made.inputs.size());
    if (options.differentiable) made.differentiable = positions<Op>(*options.differentiable);
    return made;
  }
};

// Defined op by op, in src/ops/NAME/cases.cpp.
template <typename Op>
void cases(Cases& to);

}  // namespace strata::device
