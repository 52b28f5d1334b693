// Ops by their signatures (graph/signature.h): how to build their nodes and define their rules. A rule gets
// the operands as members; only the rules here make up an OpDef.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/differentiate.h"
#include "graph/op.h"
#include "graph/signature.h"

namespace strata::graph {

// --- What members hold

// In a graph that is built: an id, kNone where the operand is not there.
struct Id {
  ValueId id = kNone;
  constexpr Id() = default;
  constexpr Id(ValueId value) : id(value) {}
  constexpr operator ValueId() const { return id; }
};
// An operand of a node, with its value.
struct Ref {
  const Value* value = nullptr;
  ValueId id = kNone;
  explicit operator bool() const { return value != nullptr; }
  bool present() const { return value != nullptr; }
  const Value& operator*() const { return *value; }
  const Value* operator->() const { return value; }
  operator ValueId() const { return id; }
  operator Id() const { return id; }
};
// Result of a shape rule for one output.
struct Spec {
  DType dtype = DType::kF32;
  Shape shape = {};
  std::vector<int64_t> segments = {};
  bool absent = false;  // the node does not have it
  int segments_along = -1;
  std::string_view name = {};  // empty: the member's

  static Spec none() { return {.absent = true}; }
  // As another value is.
  static Spec like(const Value& value) {
    return {value.dtype, value.shape, value.segments, false, value.segments_along};
  }
};

namespace detail {

template <typename T, bool many>
using OneOrMany = std::conditional_t<many, std::vector<T>, T>;

}  // namespace detail

template <typename Kind>
using Ids = detail::OneOrMany<Id, KindOf<Kind>::many>;
template <typename Kind>
using Values = detail::OneOrMany<ValueId, KindOf<Kind>::many>;
template <typename Kind>
using Refs = detail::OneOrMany<Ref, KindOf<Kind>::many>;
template <typename Kind>
using Specs = detail::OneOrMany<Spec, KindOf<Kind>::many>;
// Placements of the operands of a member of the kind Many: separate ones for the first, the same one for the
// others.
struct ManyPlaced {
  std::vector<Placement> first = {};
  Placement others = {};

  ManyPlaced(Placement all = {}) : others(all) {}
  ManyPlaced(std::vector<Placement> of_first, Placement of_others = {})
      : first(std::move(of_first)), others(of_others) {}
};
template <typename Kind>
using Placed = std::conditional_t<KindOf<Kind>::many, ManyPlaced, Placement>;

template <typename Op>
using InIds = typename Op::template In<Ids>;
template <typename Op>
using OutIds = typename Op::template Out<Ids>;

namespace detail {

// A list of operands, as members.
template <template <template <typename> class> class Side, template <typename> class Of, typename At>
Side<Of> gather(size_t operands, At&& at) {
  Side<Of> side{};
  visit(side, operands, [&](auto& member, auto kind, std::string_view, size_t first, size_t count) {
    if constexpr (kind.many) {
      for (size_t i = 0; i < count; ++i) member.push_back(at(first + i));
    } else {
      member = at(first);
    }
  });
  return side;
}
// The operands of a side in their order.
template <template <template <typename> class> class Side, template <typename> class Of>
std::vector<ValueId> flatten(Side<Of>& side) {
  std::vector<ValueId> list;
  visit(side, 0, [&](auto& member, auto kind, std::string_view, size_t, size_t) {
    if constexpr (kind.many) {
      list.insert(list.end(), member.begin(), member.end());
    } else {
      list.push_back(member);
    }
  });
  return list;
}

}  // namespace detail

template <typename Op>
const typename Op::Attrs& attributes_of(const Attributes& attrs) {
  if constexpr (std::is_same_v<typename Op::Attrs, NoAttrs>) {
    static constexpr NoAttrs kEmpty{};
    return kEmpty;
  } else {
    return attrs.as<typename Op::Attrs>();
  }
}

// A node as the rules of its op see it. In a shape rule there are no outputs yet.
template <typename Op>
struct View {
  const Graph& graph;
  const Node& node;
  typename Op::template In<Refs> in;
  typename Op::template Out<Refs> out;
  const typename Op::Attrs& attrs;

  explicit View(const NodeView& view)
      : graph(view.graph),
        node(view.node),
        in(detail::gather<Op::template In, Refs>(view.node.inputs.size(), ref_of(view, view.node.inputs))),
        out(detail::gather<Op::template Out, Refs>(view.node.outputs.size(),
                                                   ref_of(view, view.node.outputs))),
        attrs(attributes_of<Op>(view.node.attrs)) {}

  NodeView untyped() const { return {graph, node}; }

 private:
  static auto ref_of(const NodeView& view, const std::vector<ValueId>& ids) {
    return [&](size_t i) {
      const ValueId id = i < ids.size() ? ids[i] : kNone;
      return id == kNone ? Ref{} : Ref{&view.graph.value(id), id};
    };
  }
};

// One way to split an op along an axis; PlacementOption with members.
template <typename Op>
struct Split {
  typename Op::template In<Placed> in;
  typename Op::template Out<Placed> out;
};

// Output `out` may overwrite input `in` if that input is not read later.
template <typename Op>
struct Over {
  int out, in;
  consteval Over(const char* output, const char* input)
      : out(position_of<Op::template Out>(output)), in(position_of<Op::template In>(input)) {
    if (out < 0 || in < 0) throw "the op has no such operand";
  }
};

// An input of the op, by its member's name.
template <typename Op>
struct InputName {
  int position;
  consteval InputName(const char* name) : position(position_of<Op::template In>(name)) {
    if (position < 0) throw "the op has no such input";
  }
};

// The parts of an OpDef; its comments explain each rule.
template <typename Op>
struct Rules {
  std::string_view name;
  std::string_view family;
  typename Op::template Out<Specs> (*infer)(const View<Op>&);
  Cost (*cost)(const View<Op>&);
  std::vector<Split<Op>> (*placements)(const View<Op>&, Axis axis) = nullptr;  // nullptr: all replicated
  void (*gradient)(GradientBuilder&, const View<Op>&) = nullptr;
  std::vector<Over<Op>> in_place = {};
  // The first output again, from values that backward keeps anyway.
  ValueId (*recompute)(Graph&, const View<Op>&) = nullptr;
  typename Op::Attrs (*localize)(const View<Op>& global) = nullptr;
  Queue queue = Queue::kCompute;
  OpRanks (*ranks)(const View<Op>&) = nullptr;
};

// Throws ConfigError("[OP] …") if an operand is missing or its dtype does not match its kind.
void check_operand(const NodeView& view, std::string_view name, ValueId id, bool optional,
                   std::span<const DType> dtypes);
// Kernels take one dtype for all activations that they read; throws ConfigError("[OP] …") if two differ.
void check_same_dtype(const NodeView& view, std::string_view name, ValueId id, ValueId other);

namespace detail {

template <typename Element>
std::span<const DType> dtypes_of() {
  if constexpr (std::is_same_v<Element, Any> || std::is_same_v<Element, Weight>) return {};
  static constexpr DType kAct[] = {DType::kF32, DType::kBF16, DType::kF16};
  static constexpr DType kOne[] = {std::is_same_v<Element, F64>   ? DType::kF64
                                   : std::is_same_v<Element, I32> ? DType::kI32
                                   : std::is_same_v<Element, I64> ? DType::kI64
                                   : std::is_same_v<Element, U8>  ? DType::kU8
                                                                  : DType::kF32};
  if constexpr (std::is_same_v<Element, Act>) return kAct;
  return kOne;
}

template <typename Op>
void check_inputs(const NodeView& view) {
  typename Op::template In<Declared> members{};
  const std::vector<ValueId>& inputs = view.node.inputs;
  ValueId activation = kNone;
  visit(members, inputs.size(), [&](auto&, auto kind, std::string_view name, size_t first, size_t count) {
    using Element = typename decltype(kind)::Element;
    for (size_t i = first; i < first + count; ++i) {
      const ValueId id = i < inputs.size() ? inputs[i] : kNone;
      check_operand(view, name, id, kind.optional, dtypes_of<Element>());
      if (!std::is_same_v<Element, Act> || id == kNone) continue;
      if (activation == kNone) activation = id;
      check_same_dtype(view, name, id, activation);
    }
  });
}

template <typename Op>
std::vector<ValueSpec> specs_of(typename Op::template Out<Specs> out) {
  std::vector<ValueSpec> specs;
  const auto add = [&](std::string_view name, Spec& spec) {
    specs.push_back({spec.name.empty() ? name : spec.name, spec.dtype, spec.shape, std::move(spec.segments),
                     spec.absent, spec.segments_along});
  };
  visit(out, 0, [&](auto& member, auto kind, std::string_view name, size_t, size_t) {
    if constexpr (kind.many) {
      for (Spec& spec : member) add(name, spec);
    } else {
      add(name, member);
    }
  });
  return specs;
}

template <typename Op>
PlacementOption option_of(const NodeView& view, Split<Op> split) {
  const auto list = [](auto& side, size_t operands) {
    std::vector<Placement> placements;
    visit(side, operands, [&](auto& member, auto kind, std::string_view, size_t, size_t count) {
      if constexpr (kind.many) {
        for (size_t i = 0; i < count; ++i)
          placements.push_back(i < member.first.size() ? member.first[i] : member.others);
      } else {
        placements.push_back(member);
      }
    });
    return placements;
  };
  return {list(split.in, view.node.inputs.size()), list(split.out, view.node.outputs.size())};
}

}  // namespace detail

// The op of these rules, only for the definition of Op::def: it registers itself.
template <typename Op>
OpDef define(const Rules<Op>& rules) {
  using Gradient = std::function<void(GradientBuilder&, const Node&)>;
  using Recompute = std::function<ValueId(Graph&, const Node&, int)>;
  using Localize = std::function<Attributes(const NodeView&)>;
  using RanksOf = std::function<OpRanks(const NodeView&)>;
  std::vector<InPlace> in_place;
  for (const Over<Op>& over : rules.in_place) in_place.push_back({over.out, over.in});
  return {
      .name = rules.name,
      .family = rules.family,
      .infer =
          [infer = rules.infer](const NodeView& view) {
            detail::check_inputs<Op>(view);
            return detail::specs_of<Op>(infer(View<Op>(view)));
          },
      .cost = [cost = rules.cost](const NodeView& view) { return cost(View<Op>(view)); },
      .placements =
          [placements = rules.placements](const NodeView& view, Axis axis) {
            std::vector<PlacementOption> options;
            if (placements == nullptr) return options;
            for (const Split<Op>& split : placements(View<Op>(view), axis))
              options.push_back(detail::option_of<Op>(view, split));
            return options;
          },
      .gradient = rules.gradient == nullptr
                      ? Gradient()
                      : [gradient = rules.gradient](
                            GradientBuilder& builder,
                            const Node& node) { gradient(builder, View<Op>({builder.graph(), node})); },
      .in_place = std::move(in_place),
      .recompute =
          rules.recompute == nullptr
              ? Recompute()
              : [again = rules.recompute](
                    Graph& graph, const Node& node,
                    int output) { return output == 0 ? again(graph, View<Op>({graph, node})) : kNone; },
      .localize = rules.localize == nullptr
                      ? Localize()
                      : [localize = rules.localize](
                            const NodeView& view) { return Attributes(localize(View<Op>(view))); },
      .queue = rules.queue,
      .ranks = rules.ranks == nullptr
                   ? RanksOf()
                   : [ranks = rules.ranks](const NodeView& view) { return ranks(View<Op>(view)); },
  };
}

// --- Nodes

// Appends a node and returns its outputs.
template <typename Op>
typename Op::template Out<Values> add(Graph& graph, InIds<Op> in, typename Op::Attrs attrs = {}) {
  const std::vector<ValueId> out = graph.add_node(Op::def, detail::flatten(in), std::move(attrs));
  return detail::gather<Op::template Out, Values>(out.size(), [&](size_t i) { return out[i]; });
}
// Like add(), but writes to the given outputs, as Graph::add_node_into does.
template <typename Op>
void add_into(Graph& graph, InIds<Op> in, OutIds<Op> out, typename Op::Attrs attrs = {}) {
  graph.add_node_into(Op::def, detail::flatten(in), detail::flatten(out), std::move(attrs));
}
// The operands of a node of the op.
template <typename Op>
typename Op::template In<Values> inputs_of(const Node& node) {
  return detail::gather<Op::template In, Values>(node.inputs.size(),
                                                 [&](size_t i) { return node.inputs[i]; });
}
template <typename Op>
typename Op::template Out<Values> outputs_of(const Node& node) {
  return detail::gather<Op::template Out, Values>(node.outputs.size(),
                                                  [&](size_t i) { return node.outputs[i]; });
}

// Replaces the operands of a node of the op.
template <typename Op>
void set_inputs(Node& node, typename Op::template In<Values> in) {
  node.inputs = detail::flatten(in);
}
template <typename Op>
void set_outputs(Node& node, typename Op::template Out<Values> out) {
  node.outputs = detail::flatten(out);
}

// Rules::recompute of an op that is run again unchanged.
template <typename Op>
ValueId again(Graph& graph, const View<Op>& view) {
  return graph.add_node(Op::def, view.node.inputs, view.node.attrs)[0];
}

}  // namespace strata::graph
