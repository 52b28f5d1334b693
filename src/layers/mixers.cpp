#include "layers/mixers.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "graph/reshard.h"
#include "layers/context_parallel.h"
#include "layers/projections.h"
#include "ops/causal_convolution/causal_convolution.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gate/gate.h"
#include "ops/gated_norm/gated_norm.h"
#include "ops/recurrence/recurrence.h"
#include "ops/recurrence_gates/recurrence_gates.h"
#include "ops/share_heads/share_heads.h"
#include "ops/take_part/take_part.h"

namespace strata::layers {
namespace {

using graph::Init;
using graph::ParameterRole;
using graph::Placement;

using Segments = std::vector<int64_t>;

bool by_heads(const Context& context) {
  return shares_sequences(context) && context.settings.context_kind == ContextKind::kUlysses;
}
// Equal chunks of a sequence over the ranks that share it by rows.
int64_t pieces_of(const Context& context) {
  return shares_sequences(context) ? 2 * context.graph.mesh().size(Axis::kContext) : 1;
}

// Heads that ranks share: those of the tensor axis always, those of the context axis with "ulysses".
void require_heads(const Context& context, const std::string& name, int64_t heads, const char* what) {
  const int64_t tensor = context.graph.mesh().size(Axis::kTensor);
  if (heads % tensor != 0) {
    throw ConfigError("[{}] {} ranks cannot share the {} {} of {}; take a divisor of {}",
                      context.words.tensor, tensor, heads, what, name, heads);
  }
  const int64_t ranks = by_heads(context) ? context.graph.mesh().size(Axis::kContext) : 1;
  if (heads % (tensor * ranks) != 0) {
    throw ConfigError(
        "[{}] with {} = \"ulysses\" {} ranks share the {} {} of {}, which do not divide; take degrees that divide {}, "
        "or \"all_gather\"",
        context.words.context, context.words.context_kind, tensor * ranks, heads, what, name, heads);
  }
}

// Rows of a parameter that is whole in the model's files, but of which ranks hold some parts otherwise than others.
struct PartOf {
  std::string whole = {};  // empty: the parameter is whole
  int64_t first_row = 0;
  size_t first_segment = 0;
};

// A vector or a table with a row a head or channel, which ranks of the tensor axis share or all have.
ValueId per_channel(Context& context, const std::string& name, ParameterRole role, Shape shape,
                    const Init& init, Segments segments = {}, bool all_have = false,
                    const PartOf& part = {}) {
  graph::Placements placements;
  placements.decide();
  if (context.graph.mesh().size(Axis::kTensor) > 1 && !all_have) placements.set(Axis::kTensor, kRows);
  const ValueId id = context.graph.add_parameter(name, role, shape, init, placements, std::move(segments));
  graph::Parameter& made = context.graph.parameters().back();
  made.of_encoder = context.of_encoder;
  if (!part.whole.empty()) made.part = {part.whole, part.first_row, part.first_segment};
  return id;
}

// Tokens of the row's document before it, of the rows that the values have.
ValueId positions_of(Context& context, bool whole) {
  const ValueId positions = context.inputs.batch[Column::kPositions];
  return whole ? whole_sequences(context, positions, context.rows.length) : positions;
}

int64_t entries(const Context& context) {
  return context.rows.cache_slots > 0 ? context.rows.cache_slots : context.rows.sequences;
}

// What earlier tokens leave for later ones while a text is generated.
ValueId state(Context& context, const std::string& name, DType dtype, Shape shape, bool all_have = false) {
  graph::Value value;
  value.name = name;
  value.dtype = dtype;
  value.shape = shape;
  value.role = graph::Role::kCache;
  value.placements.decide();
  if (context.graph.mesh().size(Axis::kTensor) > 1 && !all_have)
    value.placements.set(Axis::kTensor, Placement::sharded(shape.rank() - 1));
  return context.graph.add_value(std::move(value));
}

struct ConvolutionSpec {
  std::string name;
  Segments segments;  // channels
  int64_t taps = 0;
  bool bias = false, silu = true;
  bool all_have = false;  // ranks of the tensor axis all have these channels
  PartOf part = {};       // of the channels of a larger convolution, by its name
};

// A short causal convolution of each channel of [N, channels].
ValueId convolution(Context& context, const ConvolutionSpec& spec, ValueId x) {
  graph::Graph& graph = context.graph;
  int64_t channels = 0;
  for (const int64_t part : spec.segments) channels += part;
  const auto parameter = [&](const char* kind, ParameterRole role, Shape shape, Init::Kind start) {
    PartOf part = spec.part;
    if (!part.whole.empty()) part.whole += kind;
    return per_channel(context, spec.name + kind, role, shape, {start}, spec.segments, spec.all_have, part);
  };
  const ValueId weight =
      parameter(".weight", ParameterRole::kConvolution, {channels, spec.taps}, Init::Kind::kNormal);
  const ValueId bias =
      spec.bias ? parameter(".bias", ParameterRole::kBias, {channels}, Init::Kind::kZeros) : kNone;
  if (context.mode == Mode::kCached) {
    const ValueId cache = state(context, spec.name + ".inputs", context.settings.activations,
                                {entries(context), spec.taps - 1, channels}, spec.all_have);
    return ops::cached_convolution(
        graph, x, {weight, bias},
        {cache, context.inputs.cache_position, context.inputs.cache_slot, new_tokens(context)}, {spec.silu});
  }
  const int64_t pieces = pieces_of(context);
  if (const int64_t length = context.rows.length / pieces; pieces > 1 && length < spec.taps - 1) {
    throw ConfigError(
        "[{}] {} ranks share a sequence of {} tokens in {} chunks, which are shorter than the {} tokens that the "
        "convolution of {} reads; take fewer ranks, or a {} of at least {}",
        context.words.context, context.graph.mesh().size(Axis::kContext), context.rows.length, pieces,
        spec.taps - 1, spec.name, context.words.sequence_length, pieces * (spec.taps - 1));
  }
  return ops::causal_convolution(
      graph, x, {weight, bias}, positions_of(context, false),
      {.sequence_length = context.rows.length, .pieces = pieces, .silu = spec.silu});
}

// A rank's part of a parameter with a number a head, where ranks of the context axis share heads.
ValueId part_by_heads(Context& context, ValueId parameter) {
  if (parameter == kNone || !by_heads(context)) return parameter;
  graph::Graph& graph = context.graph;
  return graph::add<ops::TakePart>(graph, {.x = parameter, .rank = graph::rank_block(graph)},
                                   {Axis::kContext})
      .part;
}

struct RecurrenceInputs {
  ValueId mixed, decays, steps, skip = kNone;
};

ValueId recurrence(Context& context, const std::string& name, RecurrenceInputs in, ops::RecurrenceAttrs attrs,
                   int64_t state_width) {
  graph::Graph& graph = context.graph;
  attrs.sequence_length = context.rows.length;
  if (context.mode == Mode::kCached) {
    const ValueId cache = state(context, name + ".state", DType::kF32, {entries(context), state_width});
    return ops::cached_recurrence(
        graph, {.mixed = in.mixed, .g = in.decays, .beta = in.steps, .positions = kNone, .skip = in.skip},
        {cache, context.inputs.cache_position, context.inputs.cache_slot, new_tokens(context)}, attrs);
  }
  const bool heads = by_heads(context);
  const auto exchanged = [&](ValueId rows, Placement to) {
    return heads ? graph::reshard(graph, rows, Axis::kContext, to, context.rows.length) : rows;
  };
  attrs.pieces = heads ? 1 : pieces_of(context);
  const ValueId out = ops::recurrence(graph,
                                      {.mixed = exchanged(in.mixed, kHeads),
                                       .g = exchanged(in.decays, kHeads),
                                       .beta = exchanged(in.steps, kHeads),
                                       .positions = positions_of(context, heads),
                                       .skip = part_by_heads(context, in.skip)},
                                      attrs);
  return exchanged(out, kRows);
}

ValueId out_of(Context& context, const std::string& name, int64_t inputs, int64_t hidden_size, bool bias,
               ValueId mixed) {
  return attention_out(context, {.name = name, .inputs = inputs, .hidden_size = hidden_size, .bias = bias},
                       mixed);
}

Init step_bias(double least, double most, double floor) {
  if (most == 0) return {Init::Kind::kOnes};
  return {.kind = Init::Kind::kStepBias, .value = floor, .low = least, .high = most};
}

// NAME.PART of hidden states, or through a bottleneck that every rank has whole.
class Projections {
 public:
  Projections(Context& context, const std::string& name, int64_t hidden_size, bool bias, ValueId x)
      : context_(context),
        name_(name),
        hidden_size_(hidden_size),
        bias_(bias),
        x_(x),
        whole_(gathered(context, x)) {}

  ValueId of(const char* part, ParameterRole role, Segments segments) const {
    LinearSpec spec = spec_of(part, role, hidden_size_, std::move(segments));
    spec.bias = bias_;
    return projected(context_, spec, whole_);
  }
  // Rows [first_row, …) of NAME.WHOLE as a separate projection, which ranks share or all have.
  ValueId part_of(const char* whole, const char* part, ParameterRole role, Segments segments,
                  int64_t first_row, size_t first_segment, bool all_have) const {
    graph::Graph& graph = context_.graph;
    LinearSpec spec = spec_of(part, role, hidden_size_, std::move(segments));
    spec.bias = bias_;
    if (all_have) spec.parallel = LinearSpec::Parallel::kReplicated;
    const size_t first = graph.parameters().size();
    const ValueId y = projected(context_, spec, whole_);
    for (size_t i = first; i < graph.parameters().size(); ++i) {
      graph::Parameter& parameter = graph.parameters()[i];
      const bool is_weight = graph.value(parameter.value).shape.rank() == 2;
      parameter.part = {name_ + whole + (is_weight ? ".weight" : ".bias"), first_row, first_segment};
    }
    return y;
  }
  ValueId through(const char* down, const char* up, ParameterRole role, int64_t rank, int64_t outputs) const {
    LinearSpec narrow = spec_of(down, role, hidden_size_, {rank});
    narrow.parallel = LinearSpec::Parallel::kReplicated;
    return linear(context_, spec_of(up, role, rank, {outputs}), linear(context_, narrow, x_));
  }

 private:
  LinearSpec spec_of(const char* part, ParameterRole role, int64_t inputs, Segments segments) const {
    int64_t outputs = 0;
    for (const int64_t size : segments) outputs += size;
    if (segments.size() == 1) segments.clear();
    return {.name = name_ + part,
            .role = role,
            .inputs = inputs,
            .outputs = outputs,
            .segments = std::move(segments)};
  }

  Context& context_;
  const std::string& name_;
  int64_t hidden_size_;
  bool bias_;
  ValueId x_, whole_;
};

}  // namespace

ValueId delta_net(Context& context, const DeltaSpec& spec, ValueId x) {
  graph::Graph& graph = context.graph;
  const DeltaDims& dims = spec.dims;
  require_heads(context, spec.name, dims.key_heads, "key heads");
  const Segments parts{dims.key_width(), dims.key_width(), dims.value_width()};
  const int64_t decays = dims.decays_by_channel ? dims.key_width() : dims.value_heads;
  const Projections projections(context, spec.name, spec.hidden_size, false, x);
  const ValueId qkv = projections.of(".qkv", ParameterRole::kAttentionIn, parts);
  const bool narrow = dims.gate_rank > 0;
  const ValueId gate = narrow ? projections.through(".gate_down", ".gate_up", ParameterRole::kAttentionIn,
                                                    dims.gate_rank, dims.value_width())
                              : projections.of(".gate", ParameterRole::kAttentionIn, {dims.value_width()});
  const ValueId decay = narrow ? projections.through(".decay_down", ".decay_up", ParameterRole::kDecayIn,
                                                     dims.gate_rank, decays)
                               : projections.of(".decay", ParameterRole::kDecayIn, {decays});
  const ValueId step = projections.of(".step", ParameterRole::kDecayIn, {dims.value_heads});
  const ValueId mixed =
      convolution(context, {.name = spec.name + ".convolution", .segments = parts, .taps = dims.taps}, qkv);
  const ValueId rate =
      per_channel(context, spec.name + ".decay_rate", ParameterRole::kDecayRate, {dims.value_heads},
                  {.kind = Init::Kind::kLogUniform, .low = dims.least_rate, .high = dims.most_rate});
  const ValueId bias = per_channel(context, spec.name + ".step_bias", ParameterRole::kStepBias, {decays},
                                   step_bias(dims.least_step, dims.most_step, dims.step_floor));
  const auto gates = graph::add<ops::RecurrenceGates>(
      graph, {.a = decay, .b = step, .a_log = rate, .dt_bias = bias}, {.beta_scale = dims.step_scale});
  const ValueId out = recurrence(context, spec.name, {mixed, gates.g, gates.beta},
                                 {.kind = RecurrenceKind::kDelta,
                                  .key_dim = dims.key_dim,
                                  .value_dim = dims.value_dim,
                                  .l2_norm = true,
                                  .scale = 1 / std::sqrt(static_cast<double>(dims.key_dim))},
                                 dims.value_heads * dims.key_dim * dims.value_dim);
  const ValueId weight = context.graph.add_parameter(spec.name + ".norm.weight", ParameterRole::kNorm,
                                                     {dims.value_dim}, {Init::Kind::kOnes});
  const ValueId normed = ops::gated_norm(graph, out, gate, weight,
                                         {.eps = dims.norm_eps,
                                          .group = dims.value_dim,
                                          .gate = dims.sigmoid_gate ? GateKind::kSigmoid : GateKind::kSilu});
  return out_of(context, spec.name, dims.value_width(), spec.hidden_size, false, normed);
}

namespace {

// Ranks of the tensor axis that read one group of keys and queries; 1: each has whole groups.
int64_t copies_of_groups(const Context& context, const StateSpaceSpec& spec) {
  const StateSpaceDims& dims = spec.dims;
  if (by_heads(context)) require_heads(context, spec.name, dims.groups, "groups");
  const int64_t ranks = context.graph.mesh().size(Axis::kTensor);
  if (dims.groups % ranks == 0) return 1;
  const bool norms_apart = dims.norm == StateSpaceDims::Norm::kAbsent || dims.groups == 1;
  if (ranks % dims.groups == 0 && norms_apart) return ranks / dims.groups;
  throw ConfigError("[{}] {} ranks cannot share the {} groups of {}; take a divisor of {}",
                    context.words.tensor, ranks, dims.groups, spec.name, dims.groups);
}

// [x | B | C] of this rank's heads, convolved.
ValueId convolved_inputs(Context& context, const StateSpaceSpec& spec, const Projections& projections) {
  const StateSpaceDims& dims = spec.dims;
  const int64_t keys = dims.group_width(), copies = copies_of_groups(context, spec);
  const std::vector<double>& times = dims.multipliers;
  graph::Graph& graph = context.graph;
  const ConvolutionSpec all{.name = spec.name + ".convolution",
                            .segments = {dims.width(), keys, keys},
                            .taps = dims.taps,
                            .bias = dims.convolution_bias};
  if (copies == 1) {
    const ValueId xbc = projections.of(".xbc", ParameterRole::kAttentionIn, all.segments);
    return convolution(context, all, ops::scale_parts(graph, xbc, {times[1], times[2], times[3]}));
  }
  // All ranks have all groups, and take the one that their heads read.
  const auto part = [&](const char* name, const Segments& segments, int64_t first_row, size_t first_segment,
                        bool all_have, std::vector<double> factors) {
    const ValueId rows = projections.part_of(".xbc", name, ParameterRole::kAttentionIn, segments, first_row,
                                             first_segment, all_have);
    ConvolutionSpec of_part = all;
    of_part.name += name;
    of_part.segments = segments;
    of_part.all_have = all_have;
    of_part.part = {all.name, first_row, first_segment};
    return convolution(context, of_part, ops::scale_parts(graph, rows, std::move(factors)));
  };
  const ValueId x = part(".x", {dims.width()}, 0, 0, false, {times[1]});
  const ValueId bc = part(".bc", {keys, keys}, dims.width(), 1, true, {times[2], times[3]});
  return graph::add<ops::ShareHeads>(graph, {.q = x, .kv = bc, .rank = graph::rank_block(graph)},
                                     {.axis = Axis::kTensor, .head_dim = dims.state_dim, .copies = copies})
      .qkv;
}

}  // namespace

ValueId state_space(Context& context, const StateSpaceSpec& spec, ValueId x) {
  graph::Graph& graph = context.graph;
  const StateSpaceDims& dims = spec.dims;
  require_heads(context, spec.name, dims.heads, "heads");
  const Projections projections(context, spec.name, spec.hidden_size, dims.bias, x);
  const std::vector<double>& times = dims.multipliers;
  const ValueId gate = ops::scale_parts(
      graph, projections.of(".gate", ParameterRole::kAttentionIn, {dims.width()}), {times[0]});
  const ValueId step =
      ops::scale_parts(graph, projections.of(".step", ParameterRole::kDecayIn, {dims.heads}), {times[4]});
  const ValueId mixed = convolved_inputs(context, spec, projections);
  const ValueId rate = per_channel(context, spec.name + ".decay_rate", ParameterRole::kDecayRate,
                                   {dims.heads}, {Init::Kind::kLogCount});
  const ValueId bias = per_channel(context, spec.name + ".step_bias", ParameterRole::kStepBias, {dims.heads},
                                   step_bias(dims.least_step, dims.most_step, dims.step_floor));
  const ValueId skip =
      per_channel(context, spec.name + ".skip", ParameterRole::kSkip, {dims.heads}, {Init::Kind::kOnes});
  const auto gates = graph::add<ops::RecurrenceGates>(
      graph, {.a = step, .a_log = rate, .dt_bias = bias},
      {.kind = RecurrenceKind::kStateSpace,
       .least = dims.least_dt,
       .greatest = dims.greatest_dt > 0 ? dims.greatest_dt : std::numeric_limits<double>::infinity()});
  const ValueId out =
      recurrence(context, spec.name, {mixed, gates.g, gates.beta, skip},
                 {.kind = RecurrenceKind::kStateSpace, .key_dim = dims.state_dim, .value_dim = dims.head_dim},
                 dims.heads * dims.state_dim * dims.head_dim);
  ValueId gated = kNone;
  if (dims.norm == StateSpaceDims::Norm::kAbsent) {
    gated = graph::add<ops::Gate>(graph, {.x = out, .gate = gate}, {GateKind::kSilu}).y;
  } else {
    const ValueId weight = per_channel(context, spec.name + ".norm.weight", ParameterRole::kNorm,
                                       {dims.width()}, {Init::Kind::kOnes});
    gated = ops::gated_norm(graph, out, gate, weight,
                            {.eps = dims.norm_eps,
                             .group = dims.width() / dims.groups,
                             .gate_first = dims.norm == StateSpaceDims::Norm::kGateFirst,
                             .gate = GateKind::kSilu});
  }
  return out_of(context, spec.name, dims.width(), spec.hidden_size, dims.bias, gated);
}

ValueId short_convolution(Context& context, const ShortConvolutionSpec& spec, ValueId x) {
  graph::Graph& graph = context.graph;
  const int64_t width = spec.hidden_size;
  const Projections projections(context, spec.name, width, spec.dims.bias, x);
  const ValueId before = projections.of(".before", ParameterRole::kAttentionIn, {width});
  const ValueId after = projections.of(".after", ParameterRole::kAttentionIn, {width});
  const ValueId in = projections.of(".x", ParameterRole::kAttentionIn, {width});
  const auto gated = [&](ValueId value, ValueId gate) {
    return graph::add<ops::Gate>(graph, {.x = value, .gate = gate}, {GateKind::kIdentity}).y;
  };
  const ValueId convolved = convolution(context,
                                        {.name = spec.name + ".convolution",
                                         .segments = {width},
                                         .taps = spec.dims.taps,
                                         .bias = spec.dims.bias,
                                         .silu = false},
                                        gated(in, before));
  return out_of(context, spec.name, width, width, spec.dims.bias, gated(convolved, after));
}

}  // namespace strata::layers
