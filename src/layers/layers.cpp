#include "layers/layers.h"

#include <cmath>

namespace strata::layers {

using graph::Init;
using graph::Placement;
using graph::Role;
using graph::Value;

namespace {

ValueId add_input(Context& context, const char* name, int64_t elements, Role role) {
  Value value;
  value.name = name;
  value.dtype = DType::kI32;
  value.shape = {elements};
  value.role = role;
  return context.graph.add_value(std::move(value));
}

// Replicated on every axis but "tensor".
std::vector<Placement> on_tensor_axis(const Context& context, Placement placement) {
  std::vector<Placement> placements(context.graph.mesh().axes.size());
  const int axis = context.graph.mesh().axis("tensor");
  if (axis >= 0 && context.graph.mesh().axes[static_cast<size_t>(axis)].size > 1) {
    placements[static_cast<size_t>(axis)] = placement;
  }
  return placements;
}

ValueId cache(Context& context, const std::string& name, int64_t width) {
  Value value;
  value.name = name;
  value.dtype = context.activations;
  value.shape = {context.cache_slots > 0 ? context.cache_slots : context.sequences, context.cache_room,
                 width};
  value.role = Role::kCache;
  return context.graph.add_value(std::move(value));
}

}  // namespace

void add_batch(Context& context) {
  const int64_t tokens = context.sequences * context.sequence_length;
  context.tokens = add_input(context, "tokens", tokens, Role::kInput);
  context.positions = add_input(context, "positions", tokens, Role::kInput);
  if (context.mode == Mode::kSequences) {
    context.targets = add_input(context, "targets", tokens, Role::kInput);
    if (context.document_mask) context.kv_begin = add_input(context, "kv_begin", tokens, Role::kInput);
  } else {
    context.cache_position = add_input(context, "cache_position", context.sequences, Role::kStep);
    context.cache_slot = add_input(context, "cache_slot", context.sequences, Role::kStep);
  }
}

ValueId linear(Context& context, const LinearSpec& spec, ValueId x) {
  const bool column = spec.parallel == LinearSpec::Parallel::kColumn;
  const ValueId weight = context.graph.add_parameter(
      spec.name + ".weight", {spec.outputs, spec.inputs}, {Init::Kind::kNormal, spec.init_std},
      on_tensor_axis(context, Placement::sharded(column ? 0 : 1)), spec.segments);
  ValueId bias = kNone;
  if (spec.bias) {
    bias = context.graph.add_parameter(
        spec.name + ".bias", {spec.outputs}, {Init::Kind::kZeros},
        column ? on_tensor_axis(context, Placement::sharded(0)) : std::vector<Placement>{}, spec.segments);
  }
  return ops::linear(context.graph, x, weight, bias);
}

ops::Normed norm(Context& context, const NormSpec& spec, ValueId x, ValueId residual) {
  Graph& graph = context.graph;
  const ValueId weight = graph.add_parameter(spec.name + ".weight", {spec.width}, {Init::Kind::kOnes});
  if (spec.kind == NormSpec::Kind::kRms) return ops::rms_norm(graph, x, residual, weight, spec.eps);
  const ValueId bias = graph.add_parameter(spec.name + ".bias", {spec.width}, {Init::Kind::kZeros});
  return ops::layer_norm(graph, x, residual, weight, bias, spec.eps);
}

ValueId attention(Context& context, const AttentionSpec& spec, ValueId x) {
  Graph& graph = context.graph;
  const int64_t q_width = spec.heads * spec.head_dim;
  const int64_t kv_width = spec.kv_heads * spec.head_dim;
  ValueId qkv = linear(context,
                       {.name = spec.name + ".qkv",
                        .inputs = spec.width,
                        .outputs = q_width + 2 * kv_width,
                        .bias = spec.bias,
                        .init_std = spec.init_std,
                        .segments = {q_width, kv_width, kv_width}},
                       x);
  if (spec.rope_table != kNone)
    qkv = ops::rope(graph, qkv, spec.rope_table, context.positions, spec.head_dim);
  const double scale = 1.0 / std::sqrt(static_cast<double>(spec.head_dim));
  ValueId attended = kNone;
  if (context.mode == Mode::kSequences) {
    attended = ops::attention(graph, qkv, context.kv_begin, spec.head_dim, context.sequence_length, scale);
  } else {
    attended = ops::cached_attention(graph, qkv,
                                     {.keys = cache(context, spec.name + ".keys", kv_width),
                                      .values = cache(context, spec.name + ".values", kv_width),
                                      .position = context.cache_position,
                                      .slot = context.cache_slot},
                                     spec.head_dim, context.sequence_length, scale);
  }
  return linear(context,
                {.name = spec.name + ".out",
                 .inputs = q_width,
                 .outputs = spec.width,
                 .bias = spec.bias,
                 .init_std = spec.out_init_std,
                 .parallel = LinearSpec::Parallel::kRow},
                attended);
}

ValueId ffn(Context& context, const FfnSpec& spec, ValueId x) {
  const bool gated = spec.kind == FfnSpec::Kind::kSwiglu;
  const ValueId up =
      linear(context,
             {.name = spec.name + ".up",
              .inputs = spec.width,
              .outputs = gated ? 2 * spec.hidden : spec.hidden,
              .bias = spec.bias,
              .init_std = spec.init_std,
              .segments = gated ? std::vector<int64_t>{spec.hidden, spec.hidden} : std::vector<int64_t>{}},
             x);
  const ValueId hidden = gated ? ops::swiglu(context.graph, up) : ops::gelu_tanh(context.graph, up);
  return linear(context,
                {.name = spec.name + ".down",
                 .inputs = spec.hidden,
                 .outputs = spec.width,
                 .bias = spec.bias,
                 .init_std = spec.out_init_std,
                 .parallel = LinearSpec::Parallel::kRow},
                hidden);
}

ValueId decoder(Context& context, DecoderSpec spec, ValueId embedded) {
  auto normed = [&](const std::string& name, ValueId x, ValueId residual) {
    spec.norm.name = name;
    return norm(context, spec.norm, x, residual);
  };
  // Each norm adds the block before it to the residual stream, so that the stream is read and written once a
  // block.
  ValueId stream = kNone;
  ValueId update = embedded;
  for (int64_t i = 0; i < spec.layers; ++i) {
    context.graph.set_layer(static_cast<int32_t>(i));
    const std::string name = "layers." + std::to_string(i) + ".";
    const auto before_attention = normed(name + "attention_norm", update, stream);
    spec.attention.name = name + "attention";
    const ValueId attended = attention(context, spec.attention, before_attention.y);
    const auto before_ffn = normed(name + "ffn_norm", attended, before_attention.h);
    spec.ffn.name = name + "ffn";
    update = ffn(context, spec.ffn, before_ffn.y);
    stream = before_ffn.h;
  }
  context.graph.set_layer(kNone);
  return normed("final_norm", update, stream).y;
}

ValueId embedding_table(Context& context, const std::string& name, int64_t rows, int64_t width,
                        double init_std) {
  return context.graph.add_parameter(name, {rows, width}, {Init::Kind::kNormal, init_std});
}

}  // namespace strata::layers
