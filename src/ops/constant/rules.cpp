#include "ops/rules.h"
#include "ops/constant/constant.h"

namespace strata::ops {

const OpDef Constant::def = define<Constant>({
    .name = "constant",
    .family = "setup",
    .infer = [](const auto& node) -> Outputs<Constant> {
      return {.values = {DType::kF32, {node.attrs.elements}}};
    },
    .cost = [](const auto& node) -> Cost {
      return {0, static_cast<double>(node.out.values->bytes())};
    },
});

ValueId constant(Graph& graph, const std::string& name, int64_t elements, double number) {
  Value value;
  value.name = name;
  value.shape = {elements};
  value.role = graph::Role::kConstant;
  const ValueId id = graph.add_value(std::move(value));
  graph.set_phase(graph::Phase::kSetup);
  add_into<Constant>(graph, {}, {.values = id}, {elements, number});
  graph.set_phase(graph::Phase::kForward);
  return id;
}

}  // namespace strata::ops
