// Sequences of blocks: the placement of norms, and the path of the residual stream.
#include "base/error.h"
#include "graph/sum.h"
#include "layers/layers.h"
#include "ops/elementwise/elementwise.h"

namespace strata::layers {

namespace {

// One block's parts, by name.
struct Block {
  Context& context;
  const StackSpec& spec;
  int64_t layer;
  ValueId encoded;

  std::string name(const char* part) const {
    return spec.prefix + "layers." + std::to_string(layer) + "." + part;
  }
  ops::Normed norm(const char* part, ValueId x, ValueId residual) const {
    NormSpec norm = spec.norm;
    norm.name = name(part);
    return layers::norm(context, norm, x, residual);
  }
  ValueId attention(ValueId x) const {
    if (spec.other_attention) return spec.other_attention(context, layer, name("attention"), x);
    AttentionSpec attention =
        spec.is_windowed && spec.is_windowed(layer) ? spec.window_attention : spec.attention;
    if (spec.is_unrotated && spec.is_unrotated(layer)) attention.rope_table = kNone;
    attention.name = name("attention");
    return layers::attention(context, attention, x);
  }
  ValueId scaled(ValueId update) const {
    return ops::scale_parts(context.graph, update, {spec.residual_multiplier});
  }
  LayerKind kind() const { return spec.kind(layer); }
  ValueId mixer(ValueId x) const {
    switch (kind().mixer) {
      case Mixer::kAttention:
        return attention(x);
      case Mixer::kParallel:
        return side_by_side(x);
      default:
        return spec.other_mixer(context, kind().mixer, name("mixer"), x);
    }
  }
  ValueId side_by_side(ValueId x) const {
    const StackSpec::Multipliers& times = spec.multipliers;
    const auto scaled = [&](ValueId value, double factor) {
      return ops::scale_parts(context.graph, value, {factor});
    };
    const ValueId attended = scaled(attention(scaled(x, times.attention_in)), times.attention_out);
    const ValueId mixed =
        spec.other_mixer(context, Mixer::kStateSpace, name("mixer"), scaled(x, times.mixer_in));
    return graph::add_sum(context.graph, attended, scaled(mixed, times.mixer_out));
  }
  AttentionSpec cross() const {
    AttentionSpec cross = spec.cross;
    cross.name = name("cross");
    return cross;
  }
  ValueId ffn(ValueId x) const {
    FfnSpec ffn = spec.ffn;
    ffn.name = name("ffn");
    if (spec.has_experts(layer)) return layers::moe(context, {spec.moe, ffn, spec.first_number + layer}, x);
    return layers::ffn(context, ffn, x);
  }
};

Stream pre_norm(const Block& block, Stream stream) {
  Stream between = stream;
  if (block.kind().mixer != Mixer::kAbsent) {
    const auto before_mixer = block.norm("attention_norm", stream.update, stream.rest);
    between = {block.scaled(block.mixer(before_mixer.y)), before_mixer.h};
  }
  if (!block.kind().has_ffn) return between;
  if (block.spec.reads_encoder) {
    const auto before_cross = block.norm("cross_norm", between.update, between.rest);
    between = {layers::cross_attention(block.context, block.cross(), before_cross.y, block.encoded),
               before_cross.h};
  }
  const auto before_ffn = block.norm("ffn_norm", between.update, between.rest);
  return {block.scaled(block.ffn(before_ffn.y)), before_ffn.h};
}

Stream sandwich(const Block& block, Stream stream) {
  const auto before_attention = block.norm("attention_norm", stream.update, stream.rest);
  const ValueId attended = block.norm("attention_post_norm", block.attention(before_attention.y), kNone).y;
  const auto before_ffn = block.norm("ffn_norm", attended, before_attention.h);
  return {block.norm("ffn_post_norm", block.ffn(before_ffn.y), kNone).y, before_ffn.h};
}

Stream post_norm(const Block& block, Stream stream) {
  Graph& graph = block.context.graph;
  const ValueId x = stream.rest == kNone ? stream.update : graph::add_sum(graph, stream.update, stream.rest);
  const ValueId attended = block.norm("attention_post_norm", block.attention(x), kNone).y;
  const ValueId between = graph::add_sum(graph, attended, x);
  return {block.norm("ffn_post_norm", block.ffn(between), kNone).y, between};
}

Stream parallel(const Block& block, Stream stream) {
  const auto before_attention = block.norm("attention_norm", stream.update, stream.rest);
  const auto before_ffn = block.norm("ffn_norm", before_attention.h, kNone);
  const ValueId attended = block.attention(before_attention.y);
  return {graph::add_sum(block.context.graph, attended, block.ffn(before_ffn.y)), before_attention.h};
}

// Hidden states between blocks are one value: the result of the last norm.
Stream norm_of_sum(const Block& block, Stream stream) {
  const ValueId x = stream.update;
  const ValueId between = block.norm("attention_post_norm", block.attention(x), x).y;
  return {block.norm("ffn_post_norm", block.ffn(between), between).y, kNone};
}

Stream apply(const Block& block, Stream stream) {
  switch (block.spec.placement(block.layer)) {
    case NormPlacement::kPreNorm:
      return pre_norm(block, stream);
    case NormPlacement::kPostNorm:
      return post_norm(block, stream);
    case NormPlacement::kSandwich:
      return sandwich(block, stream);
    case NormPlacement::kParallel:
      return parallel(block, stream);
    case NormPlacement::kNormOfSum:
      return norm_of_sum(block, stream);
  }
  return stream;
}

}  // namespace

Stream blocks(Context& context, const StackSpec& spec, int64_t first, int64_t end, Stream stream,
              ValueId encoded) {
  STRATA_CHECK(!spec.reads_encoder || spec.norm_placement == NormPlacement::kPreNorm,
               "only blocks with norms before them read an encoder");
  for (int64_t i = first; i < end; ++i) {
    context.graph.set_layer(static_cast<int32_t>(spec.first_number + i));
    stream = apply({context, spec, i, encoded}, stream);
  }
  context.graph.set_layer(kNone);
  return stream;
}

ValueId joined(Context& context, Stream stream) {
  return stream.rest == kNone ? stream.update : graph::add_sum(context.graph, stream.update, stream.rest);
}

ValueId end_of_stack(Context& context, const StackSpec& spec, Stream stream) {
  if (spec.norm_placement == NormPlacement::kNormOfSum) return stream.update;
  NormSpec last = spec.norm;
  last.name = spec.prefix + "final_norm";
  last.is_final = !spec.is_encoder;
  return norm(context, last, stream.update, stream.rest).y;
}

void store_encoder(Context& context, const StackSpec& spec, ValueId encoded) {
  for (int64_t i = 0; i < spec.layers; ++i)
    store_cross(context, Block{context, spec, i, encoded}.cross(), encoded);
}

}  // namespace strata::layers
