#include "ops/op_cases.h"

#include <algorithm>

#include "base/error.h"
#include "device/op_run.h"
#include "ops/case_operands.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/quantize/quantize.h"
#include "quantize/formats.h"

namespace strata::device {

namespace {

// The case with activations in a narrower type.
std::optional<OpCase> in_type(const OpCase& one, DType dtype, std::string_view suffix, double tolerance) {
  OpCase changed = one;
  bool any = false;
  for (Operand& operand : changed.inputs) {
    if (!operand.activation) continue;
    operand.dtype = dtype;
    any = true;
  }
  if (one.op == &ops::Embedding::def) {
    auto attrs = one.attrs.as<ops::EmbeddingAttrs>();
    attrs.dtype = dtype;
    changed.attrs = attrs;
    any = true;
  }
  if (!any) return std::nullopt;
  changed.name += suffix;
  changed.tolerance = tolerance;
  return changed;
}

}  // namespace

std::optional<OpCase> in_bf16(const OpCase& one) {
  return in_type(one, DType::kBF16, "_in_bf16", 2e-2);
}

std::optional<OpCase> in_fp16(const OpCase& one) {
  // Recipes keep activations in bf16.
  if (one.op == &ops::Quantize::def || one.op == &ops::GreatestMagnitudes::def) return std::nullopt;
  return in_type(one, DType::kF16, "_in_fp16", 2.5e-3);
}

void put_element(DType dtype, std::byte* to, int64_t i, double value) {
  switch (dtype) {
    case DType::kF64:
      reinterpret_cast<double*>(to)[i] = value;
      return;
    case DType::kI64:
      reinterpret_cast<int64_t*>(to)[i] = static_cast<int64_t>(value);
      return;
    case DType::kI32:
      reinterpret_cast<int32_t*>(to)[i] = static_cast<int32_t>(value);
      return;
    case DType::kU8:
    case DType::kE4M3:  // the code
      to[i] = static_cast<std::byte>(value);
      return;
    case DType::kBF16:
      reinterpret_cast<BF16*>(to)[i] = BF16(static_cast<float>(value));
      return;
    case DType::kF16:
      reinterpret_cast<F16*>(to)[i] = F16(static_cast<float>(value));
      return;
    case DType::kF32:
      reinterpret_cast<float*>(to)[i] = static_cast<float>(value);
      return;
    default:
      if (const auto format = quantize::format_of(dtype))
        return quantize::put_element(*format, to, i, static_cast<float>(value));
      throw InternalError("no case has elements of {}", name_of(dtype));
  }
}

void fill(const Operand& operand, std::byte* to) {
  for (int64_t i = 0; i < operand.shape.elements(); ++i)
    put_element(operand.dtype, to, i, operand.content(i));
}

OpGraph graph_of(const OpCase& one, const std::vector<Operand>& inputs) {
  OpGraph made;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Operand& operand = inputs[i];
    graph::ValueId id =
        operand.same_as >= 0 ? made.inputs[static_cast<size_t>(operand.same_as)] : graph::kNone;
    // A parameter, so that a weight among them is encoded as the device wants it.
    if (!operand.absent) {
      id = add_operand(made.graph, "in" + std::to_string(i), operand.dtype, operand.shape, operand.segments,
                       graph::Role::kParameter);
      made.graph.value(id).segments_along = operand.segments_along;
    }
    made.inputs.push_back(id);
  }
  const graph::Node node{one.op, made.inputs, {}, one.attrs};
  const auto specs = one.op->infer({made.graph, node});
  for (size_t o = 0; o < specs.size(); ++o) {
    graph::ValueId id = graph::kNone;
    if (specs[o].absent) {
      made.outputs.push_back(id);
      continue;
    }
    if (o < one.updates.size() && one.updates[o] >= 0) {
      id = made.inputs[static_cast<size_t>(one.updates[o])];
    } else if (std::find(one.left_out.begin(), one.left_out.end(), static_cast<int>(o)) ==
               one.left_out.end()) {
      id = add_operand(made.graph, std::string(specs[o].suffix), specs[o].dtype, specs[o].shape,
                       specs[o].segments, one.adds ? graph::Role::kGradient : graph::Role::kActivation);
      made.graph.value(id).segments_along = specs[o].segments_along;
    }
    made.outputs.push_back(id);
  }
  if (one.adds) {
    made.graph.set_phase(graph::Phase::kEncode);
    made.graph.add_node_into(*one.op, made.inputs, made.outputs, one.attrs);
    made.graph.set_phase(graph::Phase::kForward);
  }
  made.graph.add_node_into(*one.op, made.inputs, made.outputs, one.attrs);
  // Both packed layouts of a weight: for its matmul and for the matmul's gradient.
  if (one.encoding) {
    const graph::Node& linear = made.graph.nodes().back();
    graph::add<ops::LinearGradInput>(made.graph, {.dy = graph::outputs_of<ops::Linear>(linear).y,
                                                  .weight = graph::inputs_of<ops::Linear>(linear).weight});
  }
  return made;
}

}  // namespace strata::device
