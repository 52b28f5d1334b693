// A small Llama with a planted leak, and a device with kernels for the leaking ops.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/cpu/bindings.h"
#include "fixtures/tiny_program.h"
#include "ops/attention/attention.h"
#include "ops/causal_convolution/causal_convolution.h"
#include "ops/recurrence/recurrence.h"
#include "ops/rules.h"
#include "ops/sparse_attention/sparse_attention.h"
#include "program/initialize.h"

namespace strata::evaluation::leaky {

using graph::Graph;
using graph::kNone;
using graph::Node;
using graph::NodeView;
using graph::ValueId;

// --- The leaking ops. Their kernels work on whole f32 values.

struct LeakAttrs {
  int64_t length = 0;         // of a sequence
  int64_t reach = 0;          // how many rows ahead a row sees
  int64_t micro_batches = 1;  // calls after which a state is reset
  bool operator==(const LeakAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("length", length);
    to("reach", reach);
    to("micro_batches", micro_batches);
  }
};

inline std::vector<graph::ValueSpec> infer_as_first(const NodeView& view) {
  return {{"y", view.in(0).dtype, view.in(0).shape, view.in(0).segments}};
}
inline graph::Cost cost(const NodeView& view) {
  return ops::streamed(view, 1);
}
inline std::vector<graph::PlacementOption> replicated(const NodeView&, graph::Axis) {
  return {};
}
inline void pass_gradient(graph::GradientBuilder& builder, const Node& node) {
  builder.add_gradient(node.inputs[0], builder.gradient_of(node.outputs[0]));
}

// Subtracts the mean over all rows of the batch, like batch normalization.
inline const graph::OpDef kLeakyBatchMean{"leaky_batch_mean", "elementwise", infer_as_first, cost,
                                          replicated,         pass_gradient};
// Adds a value left over from the previous micro-batch.
inline const graph::OpDef kLeakyCarry{"leaky_carry", "elementwise", infer_as_first,
                                      cost,          replicated,    pass_gradient};
// Positions shifted by the last token of the sequence.
inline const graph::OpDef kLeakyPositions{"leaky_positions", "elementwise", infer_as_first, cost, replicated};
// A row's keys end `reach` rows after it, at most at the end of its sequence.
inline const graph::OpDef kLeakyEnds{"leaky_ends", "elementwise", infer_as_first, cost, replicated};
// Places in the sequence, as if it were one document.
inline const graph::OpDef kLeakyPlaces{"leaky_places", "elementwise", infer_as_first, cost, replicated};
// An indexer's choice among all keys of the sequence, of which a row then drops those that it must not see, besides its own.
inline const graph::OpDef kLeakyChoice{"leaky_choice", "elementwise", infer_as_first, cost, replicated};
// A weight scaled by the batch's last token.
inline const graph::OpDef kLeakyTint{"leaky_tint", "elementwise", infer_as_first, cost, replicated};

struct Sizes {
  int64_t rows, columns, inputs;  // inputs: elements of the second operand
  LeakAttrs attrs;
};
struct Carried {
  Sizes sizes;
  int64_t calls = 0;
  float left = 0;
};

inline device::BoundKernel bound(const device::BindRequest& request, device::Kernel run) {
  const graph::Value& x = request.view.in(0);
  const Sizes sizes{x.shape[0], x.shape.elements() / x.shape[0],
                    request.view.has(1) ? request.view.in(1).shape.elements() : 0,
                    request.view.attrs<LeakAttrs>()};
  return {.run = run, .plan = std::make_shared<const Sizes>(sizes)};
}

inline device::BoundKernel bind_batch_mean(const device::BindRequest& request) {
  return bound(request, [](device::Launch&, void* plan, std::byte* const* operands) {
    const auto& sizes = *static_cast<const Sizes*>(plan);
    const auto* x = reinterpret_cast<const float*>(operands[0]);
    auto* y = reinterpret_cast<float*>(operands[1]);
    for (int64_t c = 0; c < sizes.columns; ++c) {
      float sum = 0;
      for (int64_t r = 0; r < sizes.rows; ++r) sum += x[r * sizes.columns + c];
      for (int64_t r = 0; r < sizes.rows; ++r)
        y[r * sizes.columns + c] = x[r * sizes.columns + c] - sum / static_cast<float>(sizes.rows);
    }
  });
}

inline device::BoundKernel bind_carry(const device::BindRequest& request) {
  device::BoundKernel kernel =
      bound(request, [](device::Launch&, void* instance, std::byte* const* operands) {
        auto& carried = *static_cast<Carried*>(instance);
        const auto* x = reinterpret_cast<const float*>(operands[0]);
        auto* y = reinterpret_cast<float*>(operands[1]);
        if (carried.calls++ % carried.sizes.attrs.micro_batches == 0) carried.left = 0;
        const int64_t count = carried.sizes.rows * carried.sizes.columns;
        for (int64_t i = 0; i < count; ++i) y[i] = x[i] + carried.left;
        carried.left = x[count - 1];
      });
  kernel.instantiate = [](const void* plan) -> std::shared_ptr<void> {
    return std::make_shared<Carried>(Carried{*static_cast<const Sizes*>(plan)});
  };
  return kernel;
}

inline device::BoundKernel bind_positions(const device::BindRequest& request) {
  return bound(request, [](device::Launch&, void* plan, std::byte* const* operands) {
    const auto& sizes = *static_cast<const Sizes*>(plan);
    const auto* positions = reinterpret_cast<const int32_t*>(operands[0]);
    const auto* tokens = reinterpret_cast<const int32_t*>(operands[1]);
    auto* y = reinterpret_cast<int32_t*>(operands[2]);
    for (int64_t r = 0; r < sizes.rows; ++r) {
      const int64_t last = (r / sizes.attrs.length + 1) * sizes.attrs.length - 1;
      y[r] = static_cast<int32_t>((positions[r] + tokens[last] % 7) % sizes.attrs.length);
    }
  });
}

inline device::BoundKernel bind_ends(const device::BindRequest& request) {
  return bound(request, [](device::Launch&, void* plan, std::byte* const* operands) {
    const auto& sizes = *static_cast<const Sizes*>(plan);
    auto* y = reinterpret_cast<int32_t*>(operands[1]);
    for (int64_t r = 0; r < sizes.rows; ++r)
      y[r] =
          static_cast<int32_t>(std::min(r % sizes.attrs.length + 1 + sizes.attrs.reach, sizes.attrs.length));
  });
}

inline device::BoundKernel bind_places(const device::BindRequest& request) {
  return bound(request, [](device::Launch&, void* plan, std::byte* const* operands) {
    const auto& sizes = *static_cast<const Sizes*>(plan);
    auto* y = reinterpret_cast<int32_t*>(operands[1]);
    for (int64_t r = 0; r < sizes.rows; ++r) y[r] = static_cast<int32_t>(r % sizes.attrs.length);
  });
}

inline device::BoundKernel bind_tint(const device::BindRequest& request) {
  return bound(request, [](device::Launch&, void* plan, std::byte* const* operands) {
    const auto& sizes = *static_cast<const Sizes*>(plan);
    const auto* x = reinterpret_cast<const float*>(operands[0]);
    const auto* tokens = reinterpret_cast<const int32_t*>(operands[1]);
    auto* y = reinterpret_cast<float*>(operands[2]);
    const float factor = 1 + 1e-3f * static_cast<float>(tokens[sizes.inputs - 1]);
    for (int64_t i = 0; i < sizes.rows * sizes.columns; ++i) y[i] = x[i] * factor;
  });
}

struct ChoiceSizes {
  int64_t rows, count, length, heads, dim;
};
// chosen, q, k, weights, kv_begin.
inline device::BoundKernel bind_choice(const device::BindRequest& request) {
  const Shape &of_choice = request.view.in(0).shape, &of_keys = request.view.in(2).shape;
  const ChoiceSizes sizes{of_choice[0], of_choice[1], request.view.attrs<LeakAttrs>().length,
                          request.view.in(3).shape[1], of_keys[1]};
  const auto run = [](device::Launch&, void* plan, std::byte* const* operands) {
    const auto& at = *static_cast<const ChoiceSizes*>(plan);
    const auto *q = reinterpret_cast<const float*>(operands[1]),
               *k = reinterpret_cast<const float*>(operands[2]),
               *weights = reinterpret_cast<const float*>(operands[3]);
    const auto* begins = reinterpret_cast<const int32_t*>(operands[4]);
    auto* y = reinterpret_cast<int32_t*>(operands[5]);
    for (int64_t r = 0; r < at.rows; ++r) {
      const int64_t first = r / at.length * at.length;
      std::vector<std::pair<float, int64_t>> scores;
      for (int64_t s = 0; s < at.length; ++s) {
        float score = 0;
        for (int64_t h = 0; h < at.heads; ++h) {
          float dot = 0;
          for (int64_t i = 0; i < at.dim; ++i)
            dot += q[(r * at.heads + h) * at.dim + i] * k[(first + s) * at.dim + i];
          score += weights[r * at.heads + h] * std::max(dot, 0.0f);
        }
        scores.emplace_back(-score, s);
      }
      std::sort(scores.begin(), scores.end());
      scores.resize(static_cast<size_t>(at.count - 1));
      scores.emplace_back(0.0f, r - first);
      std::vector<int32_t> kept;
      for (const auto& [score, place] : scores)
        if (place >= begins[r] && place <= r - first) kept.push_back(static_cast<int32_t>(place));
      std::sort(kept.begin(), kept.end());
      kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
      kept.resize(static_cast<size_t>(at.count), -1);
      std::copy(kept.begin(), kept.end(), y + r * at.count);
    }
  };
  return {.run = run, .plan = std::make_shared<const ChoiceSizes>(sizes)};
}

inline std::span<const device::Binding> bindings() {
  static const std::vector<device::Binding> table = [] {
    std::vector<device::Binding> rows(device::cpu_bindings().begin(), device::cpu_bindings().end());
    rows.insert(rows.end(), {{&kLeakyBatchMean, bind_batch_mean},
                             {&kLeakyCarry, bind_carry},
                             {&kLeakyPositions, bind_positions},
                             {&kLeakyEnds, bind_ends},
                             {&kLeakyPlaces, bind_places},
                             {&kLeakyChoice, bind_choice},
                             {&kLeakyTint, bind_tint}});
    return rows;
  }();
  return table;
}

class LeakyDevice final : public device::HostDevice {
 public:
  LeakyDevice() : HostDevice({device::cpu_target(compute_threads()).spec, bindings()}) {}
};

// --- Planting

enum class Plant {
  kNothing,
  kBidirectional,  // rows of layer 2 see their whole document
  kBothWays,       // rows of all layers see their whole document
  kOffByOne,       // rows of layer 1 see one key ahead
  kWindowAhead,    // rows of layer 2 see five keys ahead
  kOtherDocument,  // rows of layer 1 see all earlier documents
  kBatchMean,      // layer 1
  kBatchMeanOfHidden,
  kCarry,  // layer 1: from one micro-batch to the next
  kPositions,
  kTint,                    // the head
  kConvolutionRunsOn,       // of layer 0, from one document into the next
  kStateRunsOn,             // of layer 0, likewise
  kConvolutionOfNextPiece,  // of layer 0: each chunk of a shared sequence reads the end of the chunk after it
  kChoiceBeforeMask,        // of layer 0: keys are chosen before those that a row must not see are excluded
  kStateOfOwnPiece,         // of layer 0: each chunk begins with the state that it ends with
};

// The leak to plant. The family's build function has no argument for it.
inline Plant planted = Plant::kNothing;
inline int64_t planted_micro_batches = 1;

inline void renumber(Graph& graph) {
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    for (const ValueId id : graph.nodes()[i].outputs) {
      if (id != kNone) graph.value(id).producer = static_cast<graph::NodeId>(i);
    }
  }
}

// An input of an attention node, for replacement.
inline ValueId& input_of(Node& node, std::string_view name) {
  return node.inputs[static_cast<size_t>(graph::position_of<ops::Attention::In>(name))];
}

inline size_t attention_of(const Graph& graph, int32_t layer) {
  const auto& nodes = graph.nodes();
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) {
    return node.op == &ops::Attention::def && node.layer == layer;
  });
  return static_cast<size_t>(found - nodes.begin());
}

// Inserts an op between the qkv of a layer and its attention.
inline void insert_before_attention(Graph& graph, int32_t layer, const graph::OpDef& op, LeakAttrs attrs) {
  const size_t at = attention_of(graph, layer);
  const ValueId x = input_of(graph.nodes()[at], "qkv");
  graph.set_layer(layer);
  const ValueId y = graph.add_node(op, {x}, attrs)[0];
  graph.set_layer(kNone);
  input_of(graph.nodes()[at], "qkv") = y;
  const auto first = graph.nodes().begin() + static_cast<std::ptrdiff_t>(at);
  std::rotate(first, std::prev(graph.nodes().end()), graph.nodes().end());
  renumber(graph);
}

// The first node of an op in layer 0; the number of nodes if there is none.
inline size_t first_of(const Graph& graph, const graph::OpDef& op) {
  const auto& nodes = graph.nodes();
  const auto found = std::find_if(nodes.begin(), nodes.end(),
                                  [&](const Node& node) { return node.op == &op && node.layer == 0; });
  return static_cast<size_t>(found - nodes.begin());
}

template <typename Op>
void replace_input(Graph& graph, std::string_view name, ValueId value) {
  const size_t at = first_of(graph, Op::def);
  if (at == graph.nodes().size()) return;  // a stage without the layer
  graph.nodes()[at].inputs[static_cast<size_t>(graph::position_of<Op::template In>(name))] = value;
}

// The map of each chunk becomes that of the chunk after it.
inline void shift_maps(Graph& graph) {
  const size_t at = first_of(graph, ops::ComposeMaps::def);
  if (at == graph.nodes().size()) return;
  const auto pieces = graph.nodes()[at].attrs.as<ops::RecurrenceAttrs>().pieces;
  graph.set_layer(0);
  const ValueId shifted =
      graph::add<ops::ShiftPieces>(graph, {.x = graph.nodes()[at].inputs[0]}, {pieces, 1, true}).shifted;
  graph.set_layer(kNone);
  graph.nodes()[at].inputs[0] = shifted;
  const auto first = graph.nodes().begin() + static_cast<std::ptrdiff_t>(at);
  std::rotate(first, std::prev(graph.nodes().end()), graph.nodes().end());
  renumber(graph);
}

// Keys are chosen by kLeakyChoice.
inline void choose_before_mask(Graph& graph, const layers::Context& context) {
  const size_t at = first_of(graph, ops::SelectKeys::def);
  if (at == graph.nodes().size()) return;
  const Node node = graph.nodes()[at];
  graph.set_layer(0);
  const ValueId chosen = graph.add_node(kLeakyChoice,
                                        {node.outputs[0], node.inputs[0], node.inputs[1], node.inputs[2],
                                         context.inputs.batch[Column::kKvBegin]},
                                        LeakAttrs{.length = context.rows.length})[0];
  graph.set_layer(kNone);
  for (Node& reader : graph.nodes()) {
    if (reader.op == &kLeakyChoice) continue;
    std::replace(reader.inputs.begin(), reader.inputs.end(), node.outputs[0], chosen);
  }
  const auto first = graph.nodes().begin() + static_cast<std::ptrdiff_t>(at) + 1;
  std::rotate(first, std::prev(graph.nodes().end()), graph.nodes().end());
  renumber(graph);
}

inline void let_see(Graph& graph, int32_t layer, ValueId ends) {
  Node& node = graph.nodes().at(attention_of(graph, layer));
  auto attrs = node.attrs.as<ops::AttentionAttrs>();
  attrs.causal = false;
  node.attrs = attrs;
  input_of(node, "kv_end") = ends;
}

inline models::Hidden build(const models::ModelConfig& config, layers::Context& context) {
  Graph& graph = context.graph;
  ValueId ends = kNone;
  const auto ends_of = [&](int64_t reach) {
    return graph.add_node(kLeakyEnds, {context.inputs.batch[Column::kKvBegin]},
                          LeakAttrs{.length = context.rows.length, .reach = reach})[0];
  };
  if (planted == Plant::kBidirectional) {
    layers::make_bidirectional(context);
    ends = std::exchange(context.inputs.kv_end, kNone);
    context.causal = true;
  }
  if (planted == Plant::kBothWays) layers::make_bidirectional(context);
  if (planted == Plant::kOffByOne) ends = ends_of(1);
  if (planted == Plant::kWindowAhead) ends = ends_of(5);
  ValueId places = kNone;
  if (planted == Plant::kConvolutionRunsOn || planted == Plant::kStateRunsOn) {
    places = graph.add_node(kLeakyPlaces, {context.inputs.batch[Column::kPositions]},
                            LeakAttrs{.length = context.rows.length})[0];
  }
  if (planted == Plant::kPositions) {
    context.inputs.batch[Column::kPositions] = graph.add_node(
        kLeakyPositions, {context.inputs.batch[Column::kPositions], context.inputs.batch[Column::kTokens]},
        LeakAttrs{.length = context.rows.length})[0];
  }
  models::Hidden hidden = models::find_family("llama3")->build(config, context);
  switch (planted) {
    case Plant::kNothing:
    case Plant::kBothWays:
    case Plant::kPositions:
      break;
    case Plant::kBidirectional:
    case Plant::kWindowAhead:
      let_see(graph, 2, ends);
      break;
    case Plant::kOffByOne:
      let_see(graph, 1, ends);
      break;
    case Plant::kOtherDocument:
      // A stage of a pipeline may have other layers.
      if (const size_t at = attention_of(graph, 1); at < graph.nodes().size())
        input_of(graph.nodes()[at], "kv_begin") = kNone;
      break;
    case Plant::kBatchMean:
      insert_before_attention(graph, 1, kLeakyBatchMean, {});
      break;
    case Plant::kBatchMeanOfHidden:
      hidden.values = graph.add_node(kLeakyBatchMean, {hidden.values}, LeakAttrs{})[0];
      break;
    case Plant::kCarry:
      insert_before_attention(graph, 1, kLeakyCarry, {.micro_batches = planted_micro_batches});
      break;
    case Plant::kConvolutionRunsOn:
      replace_input<ops::CausalConvolution>(graph, "positions", places);
      break;
    case Plant::kStateRunsOn:
      replace_input<ops::Recurrence>(graph, "positions", places);
      break;
    case Plant::kConvolutionOfNextPiece:
      if (const size_t at = first_of(graph, ops::ShiftPieces::def); at < graph.nodes().size()) {
        auto attrs = graph.nodes()[at].attrs.as<ops::ShiftPiecesAttrs>();
        attrs.back = true;
        graph.nodes()[at].attrs = attrs;
      }
      break;
    case Plant::kChoiceBeforeMask:
      choose_before_mask(graph, context);
      break;
    case Plant::kStateOfOwnPiece:
      shift_maps(graph);
      break;
    case Plant::kTint:
      hidden.head =
          graph.add_node(kLeakyTint, {hidden.head, context.inputs.batch[Column::kTokens]}, LeakAttrs{})[0];
      break;
  }
  return hidden;
}

inline const models::Family& family() {
  static const models::Family kFamily = [] {
    models::Family family = *models::find_family("llama3");
    family.build = build;
    return family;
  }();
  return kFamily;
}

inline program::CompileOptions options_of(Plant plant, int64_t micro_batches = 1) {
  planted = plant;
  planted_micro_batches = micro_batches;
  program::CompileOptions options = program::tiny_options("llama3-5m");
  options.model.family = &family();
  return options;
}

// With initial weights, ready to run.
inline std::unique_ptr<program::Executor> make_executor(const program::Request& request,
                                                        program::CompileOptions options) {
  const auto device = std::make_shared<LeakyDevice>();
  options.target = device->target();
  auto executor = std::make_unique<program::Executor>(program::compile({request}, options), device);
  program::initialize_weights(*executor, 3);
  executor->run(0, {program::Segment::kEncode});
  return executor;
}

}  // namespace strata::evaluation::leaky
