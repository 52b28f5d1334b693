// Operands of a case as dense tensors of doubles, cut into shards and put together again, and an op run on
// them through a device's bindings.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "op_cases.h"
#include "ops/ops.h"
#include "program/op_run.h"

namespace strata::ops {

struct Tensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<int64_t> segments;
  std::vector<double> values;
  bool absent = false;
};

inline double pseudo_random(uint64_t i) {
  uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 32;
  return static_cast<double>(x >> 40) / 8388608.0 - 1.0;
}

inline Tensor tensor_of(const Operand& operand, uint64_t stream) {
  Tensor tensor{operand.dtype, operand.shape, operand.segments, {}, operand.absent};
  if (operand.absent) return tensor;
  for (int64_t i = 0; i < operand.shape.elements(); ++i) {
    tensor.values.push_back(operand.content ? operand.content(i)
                                            : pseudo_random(stream * 1000003 + static_cast<uint64_t>(i)));
  }
  return tensor;
}

// To within `tolerance` of 1 + |wanted|; an infinity is only near itself.
inline bool is_near(double found, double wanted, double tolerance) {
  return found == wanted || std::abs(found - wanted) <= tolerance * (1 + std::abs(wanted));
}

inline void store(const Tensor& tensor, std::byte* to) {
  for (size_t i = 0; i < tensor.values.size(); ++i) {
    const double value = tensor.values[i];
    switch (tensor.dtype) {
      case DType::kI32:
        reinterpret_cast<int32_t*>(to)[i] = static_cast<int32_t>(value);
        break;
      case DType::kU8:
        reinterpret_cast<uint8_t*>(to)[i] = static_cast<uint8_t>(value);
        break;
      case DType::kBF16:
        reinterpret_cast<BF16*>(to)[i] = BF16(static_cast<float>(value));
        break;
      default:
        reinterpret_cast<float*>(to)[i] = static_cast<float>(value);
    }
  }
}

inline Tensor load(const graph::Value& value, const std::byte* from) {
  Tensor tensor{value.dtype, value.shape, value.segments, {}, false};
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
      case DType::kBF16:
        tensor.values.push_back(
            static_cast<double>(static_cast<float>(reinterpret_cast<const BF16*>(from)[i])));
        break;
      default:
        tensor.values.push_back(static_cast<double>(reinterpret_cast<const float*>(from)[i]));
    }
  }
  return tensor;
}

// The outputs of the op on these inputs. A second-weight input that is absent stands for the first one (the
// two encodings of the loss's head).
inline std::vector<Tensor> run_op(const OpCase& one, const std::vector<Tensor>& inputs,
                                  std::span<const program::Binding> bindings = program::cpu_bindings()) {
  graph::Graph graph;
  std::vector<graph::ValueId> ids;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    if (input.absent) {
      ids.push_back(one.op == &kLinearCrossEntropyTrain && i == 2 ? ids[1] : graph::kNone);
      continue;
    }
    ids.push_back(program::add_operand(graph, "in" + std::to_string(i), input.dtype, input.shape,
                                       input.segments, graph::Role::kParameter));
  }
  std::vector<graph::ValueId> outputs = graph.add_node(*one.op, ids, one.attrs);
  for (size_t o = 0; o < one.updates.size(); ++o) {
    if (one.updates[o] >= 0) outputs[o] = ids[static_cast<size_t>(one.updates[o])];
  }
  graph.nodes().back().outputs = outputs;
  program::OpRun run(std::move(graph), 1, 1, nullptr, bindings);
  for (graph::ValueId id = 0; id < run.graph().value_count(); ++id) {
    std::memset(run.data(id), 0xff, static_cast<size_t>(run.graph().value(id).bytes()));  // NaN
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].absent) store(inputs[i], run.data(ids[i]));
  }
  run.encode();
  run.run();
  std::vector<Tensor> out;
  for (const graph::ValueId id : outputs) out.push_back(load(run.graph().value(id), run.data(id)));
  return out;
}

}  // namespace strata::ops
