#include "ops/case_tensors.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace strata::ops {

using device::Operand;

double pseudo_random(uint64_t i) {
  uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 32;
  return static_cast<double>(x >> 40) / 8388608.0 - 1.0;
}

Tensor tensor_of(const Operand& operand, uint64_t stream) {
  Tensor tensor{operand.dtype, operand.shape, operand.segments, {}, operand.absent, operand.segments_along};
  if (operand.absent) return tensor;
  for (int64_t i = 0; i < operand.shape.elements(); ++i) {
    tensor.values.push_back(operand.content ? operand.content(i)
                                            : pseudo_random(stream * 1000003 + static_cast<uint64_t>(i)));
  }
  return tensor;
}

bool is_near(double found, double wanted, double tolerance) {
  return found == wanted || std::abs(found - wanted) <= tolerance * (1 + std::abs(wanted));
}

void store(const Tensor& tensor, std::byte* to) {
  for (size_t i = 0; i < tensor.values.size(); ++i)
    device::put_element(tensor.dtype, to, static_cast<int64_t>(i), tensor.values[i]);
}

Tensor load(const graph::Value& value, const std::byte* from) {
  Tensor tensor{value.dtype, value.shape, value.segments, {}, false, value.segments_along};
  for (int64_t i = 0; i < value.shape.elements(); ++i) {
    switch (value.dtype) {
      case DType::kF64:
        tensor.values.push_back(reinterpret_cast<const double*>(from)[i]);
        break;
      case DType::kI64:
        tensor.values.push_back(static_cast<double>(reinterpret_cast<const int64_t*>(from)[i]));
        break;
      case DType::kI32:
        tensor.values.push_back(reinterpret_cast<const int32_t*>(from)[i]);
        break;
      case DType::kU8:
        tensor.values.push_back(static_cast<double>(reinterpret_cast<const uint8_t*>(from)[i]));
        break;
      case DType::kBF16:
        tensor.values.push_back(
            static_cast<double>(static_cast<float>(reinterpret_cast<const BF16*>(from)[i])));
        break;
      case DType::kF16:
        tensor.values.push_back(
            static_cast<double>(static_cast<float>(reinterpret_cast<const F16*>(from)[i])));
        break;
      default:
        tensor.values.push_back(static_cast<double>(reinterpret_cast<const float*>(from)[i]));
    }
  }
  return tensor;
}

std::vector<Operand> operands_of(const OpCase& one, const std::vector<Tensor>& inputs) {
  std::vector<Operand> operands = one.inputs;
  operands.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    operands[i].dtype = inputs[i].dtype;
    operands[i].shape = inputs[i].shape;
    operands[i].segments = inputs[i].segments;
    operands[i].absent = inputs[i].absent;
  }
  return operands;
}

std::vector<Tensor> inputs_of(const OpCase& one, uint64_t round) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < one.inputs.size(); ++i)
    inputs.push_back(tensor_of(one.inputs[i], round * one.inputs.size() + i + 1));
  return inputs;
}

std::vector<Tensor> run_case(const OpCase& one, const std::vector<Tensor>& inputs,
                             FunctionRef<device::OpRun(graph::Graph)> make, int poison) {
  device::OpGraph made = device::graph_of(one, operands_of(one, inputs));
  device::OpRun run = make(std::move(made.graph));
  run.poison(poison);
  std::vector<std::byte> bytes;
  const auto buffer_for = [&](graph::ValueId id) {
    bytes.resize(static_cast<size_t>(run.graph().value(id).bytes()));
    return bytes.data();
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].absent) continue;
    store(inputs[i], buffer_for(made.inputs[i]));
    run.upload(made.inputs[i], bytes.data());
  }
  run.encode();
  run.run();
  std::vector<Tensor> out;
  for (const graph::ValueId id : made.outputs) {
    if (id == graph::kNone) {
      out.push_back({.dtype = DType::kF32, .shape = {}, .segments = {}, .values = {}, .absent = true});
      continue;
    }
    run.download(id, buffer_for(id));
    out.push_back(load(run.graph().value(id), bytes.data()));
  }
  return out;
}

std::vector<PlacedCase> placed_cases(const OpCase& one) {
  std::vector<PlacedCase> made;
  if (one.op->in_place.empty()) return made;
  const device::OpGraph apart = device::graph_of(one, one.inputs);
  std::vector<int> all = one.updates;
  all.resize(apart.outputs.size(), -1);
  const std::vector<int> own = all;
  int outputs = 0;
  for (const graph::InPlace& pair : one.op->in_place) {
    const auto output = static_cast<size_t>(pair.output), input = static_cast<size_t>(pair.input);
    if (output >= apart.outputs.size() || input >= apart.inputs.size() || own[output] >= 0) continue;
    const graph::ValueId from = apart.inputs[input], to = apart.outputs[output];
    if (from == graph::kNone || to == graph::kNone ||
        apart.graph.value(from).bytes() != apart.graph.value(to).bytes() ||
        std::count(apart.inputs.begin(), apart.inputs.end(), from) > 1)
      continue;
    PlacedCase& next = made.emplace_back(PlacedCase{one, one});
    next.placed.updates = own;
    next.placed.updates[output] = pair.input;
    next.placed.name += "_over_" + std::to_string(pair.input);
    if (all[output] >= 0) continue;
    all[output] = pair.input;
    ++outputs;
  }
  if (outputs > 1) {
    PlacedCase& next = made.emplace_back(PlacedCase{one, one});
    next.placed.updates = all;
    next.placed.name += "_over_all";
  }
  return made;
}

}  // namespace strata::ops
