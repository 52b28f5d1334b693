#include "program/statistics.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "graph/reshard.h"
#include "graph/sum.h"
#include "ops/attention/attention.h"
#include "ops/context_attention/context_attention.h"
#include "ops/linear/linear.h"
#include "ops/loss/loss.h"
#include "ops/norm/norm.h"
#include "ops/scaled_linear/scaled_linear.h"
#include "ops/statistics/statistics.h"
#include "optim/scalars/scalars.h"
#include "program/executor.h"
#include "program/passes.h"

namespace strata::program {

using graph::Axis;
using graph::Graph;
using graph::kNone;
using graph::Node;
using graph::Phase;
using graph::Placement;
using graph::Role;
using graph::Value;
using graph::ValueId;

static_assert(ops::kDigestBlock == optim::kNormBlock, "a digest's partial sums are those of the norm");

std::string_view name_of(Watched what) {
  static constexpr std::string_view kNames[] = {"gradient",   "first_gradient", "weight", "update", "stream",
                                                "activation", "queries",        "keys",   "hidden"};
  return kNames[static_cast<size_t>(what)];
}

namespace {

constexpr auto kWhole = Placement::replicated();

bool is_of_forward(const Node& node) {
  return node.phase == Phase::kForward && node.loop == kNone;
}

// The input and the weight of a head; kNone: the node is none.
struct HeadReads {
  ValueId x = kNone, weight = kNone;
};
template <typename Op>
HeadReads head_reads(const Node& node) {
  if (node.op != &Op::def) return {};
  const auto in = graph::inputs_of<Op>(node);
  return {in.x, in.weight};
}
HeadReads head_of(const Node& node) {
  for (const HeadReads& found :
       {head_reads<ops::LinearCrossEntropyTrain>(node), head_reads<ops::LinearCrossEntropy>(node),
        head_reads<ops::CrossEntropyStatistics>(node)})
    if (found.x != kNone) return found;
  return {};
}

// The residual stream that a node makes of two terms; kNone: it makes none.
ValueId stream_made_by(const Node& node) {
  if (node.op == &ops::RmsNorm::def) return graph::outputs_of<ops::RmsNorm>(node).h;
  if (node.op == &ops::LayerNorm::def) return graph::outputs_of<ops::LayerNorm>(node).h;
  if (node.op == &graph::Add::def) return graph::outputs_of<graph::Add>(node).sum;
  return kNone;
}

class StatisticsAdder {
 public:
  StatisticsAdder(Graph& graph, const StatisticsOptions& options)
      : graph_(graph), options_(options), old_(graph.nodes()), before_(old_.size()), after_(old_.size()) {
    for (size_t i = 0; i < graph.parameters().size(); ++i) parameter_of_[graph.parameters()[i].value] = i;
    for (size_t i = 0; i < old_.size(); ++i) {
      for (const ValueId output : old_[i].outputs) {
        if (output == kNone || graph::is_temporary(graph.value(output).role)) continue;
        (old_[i].phase == Phase::kUpdate ? in_update_ : in_micro_batch_)[output].push_back(i);
      }
    }
  }

  std::vector<Statistic> run() {
    Value mask;
    mask.name = "statistics_mask";
    mask.dtype = DType::kI64;
    mask.shape = {1};
    mask.role = Role::kStep;
    mask_ = graph_.add_value(std::move(mask));
    graph_.set_metric(graph::MetricKind::kStatisticsMask, mask_);
    find_head();
    watch_gradients();
    watch_weights();
    watch_sums();
    watch_activations();
    watch_streams();
    insert();
    return std::move(list_);
  }

 private:
  // On the axes on which `of` is replicated one rank reports; on all others each does.
  graph::Placements own_of(const Value& of) const {
    graph::Placements placements;
    placements.decide();
    for (const Axis axis : graph::kAllAxes) {
      if (graph_.mesh().size(axis) > 1 && (axis == Axis::kPipeline || of.placements[axis] != kWhole))
        placements.set(axis, Placement::partial());
    }
    return placements;
  }

  ValueId add_table(Statistic statistic, const Value& of) {
    Value table;
    table.name = "statistics." + std::to_string(list_.size());
    table.dtype = DType::kF64;
    table.shape = {kStatisticsNumbers};
    table.role = Role::kMetric;
    table.placements = own_of(of);
    const ValueId id = graph_.add_value(std::move(table));
    graph_.set_metric(graph::MetricKind::kStatistics, id, static_cast<int32_t>(list_.size()));
    list_.push_back(std::move(statistic));
    return id;
  }

  // An instruction of the list that `other` is in.
  template <typename Op>
  static Node node_like(const Node& other, typename Op::template In<graph::Values> in,
                        typename Op::template Out<graph::Values> out, typename Op::Attrs attrs) {
    Node node;
    node.op = &Op::def;
    node.phase = other.phase;
    node.layer = other.layer;
    node.chunk = other.chunk;
    if constexpr (!std::is_same_v<typename Op::Attrs, graph::NoAttrs>) node.attrs = std::move(attrs);
    graph::set_inputs<Op>(node, std::move(in));
    graph::set_outputs<Op>(node, std::move(out));
    return node;
  }

  // Measures x next to node i, as an instruction of the same list.
  void measure(std::vector<Node>& place, size_t i, ValueId x, Statistic statistic,
               ops::StatisticsAttrs attrs = {}) {
    attrs.group = static_cast<int64_t>(statistic.group);
    const ValueId table = add_table(std::move(statistic), graph_.value(x));
    place.push_back(
        node_like<ops::Statistics>(old_[i], {.x = x, .mask = mask_}, {.table = table}, std::move(attrs)));
  }
  std::vector<Node>& after(size_t i) {
    while (old_[i].loop != kNone && i + 1 < old_.size() && old_[i + 1].loop == old_[i].loop) ++i;
    return after_[i];
  }

  Statistic of_parameter(Watched what, StatisticsGroup group, const graph::Parameter& parameter) const {
    const Value& value = graph_.value(parameter.value);
    const Shape& whole = value.sharding.global_shape;
    const Shape& shape = whole.rank() > 0 ? whole : value.shape;
    return {.what = what,
            .group = group,
            .layer = parameter.layer,
            .tensor = value.name,
            .elements = static_cast<double>(shape.elements()),
            .is_matrix = shape.rank() >= 2};
  }

  // The parameter that a value is, or is gathered from; nullptr: none.
  const graph::Parameter* parameter_at(ValueId value) const {
    const ValueId sharded = graph_.value(value).sharding.whole_of;
    const auto found = parameter_of_.find(sharded != kNone ? sharded : value);
    return found == parameter_of_.end() ? nullptr : &graph_.parameters()[found->second];
  }

  void find_head() {
    const ValueId loss = graph_.metric(graph::MetricKind::kLossSum);
    for (size_t i = 0; i < old_.size(); ++i) {
      // The fused loss is in backward, where those of further tokens come first.
      const bool is_main =
          old_[i].op != &ops::LinearCrossEntropyTrain::def ||
          std::find(old_[i].outputs.begin(), old_[i].outputs.end(), loss) != old_[i].outputs.end();
      if (old_[i].loop != kNone || !is_main) continue;
      const HeadReads reads = head_of(old_[i]);
      if (reads.x == kNone) continue;
      const graph::Parameter* const weight = parameter_at(reads.weight);
      head_ = weight != nullptr ? weight->value : kNone;
      const Value& x = graph_.value(reads.x);
      measure(before_[i], i, reads.x, {.what = Watched::kHidden, .group = StatisticsGroup::kActivations},
              {.row = x.shape[x.shape.rank() - 1]});
      return;  // the main one comes first
    }
  }

  // Gradients as the norm reads them, and as the first micro-batch leaves them.
  void watch_gradients() {
    std::unordered_map<ValueId, size_t> gradient_of;  // the parameter
    for (size_t p = 0; p < graph_.parameters().size(); ++p) {
      const graph::Parameter& parameter = graph_.parameters()[p];
      if (parameter.gradient == kNone || !parameter.sharing.is_first_holder) continue;
      gradient_of[parameter.gradient] = p;
      watch_first(parameter);
    }
    for (size_t i = 0; i < old_.size(); ++i) {
      const Node& node = old_[i];
      if (node.phase != Phase::kUpdate) continue;
      for (size_t o = 0; node.op == &graph::Reshard::def && o < node.inputs.size(); ++o) {
        const auto found = gradient_of.find(node.inputs[o]);
        if (found != gradient_of.end()) gradient_of[node.outputs[o]] = found->second;
      }
      if (node.op != &optim::SumOfSquares::def) continue;
      const auto found = gradient_of.find(node.inputs.front());
      if (found == gradient_of.end()) continue;
      measure(
          after_[i], i, node.inputs.front(),
          of_parameter(Watched::kGradient, StatisticsGroup::kWeights, graph_.parameters()[found->second]));
    }
  }

  // After the first micro-batch a rank's accumulator is the gradient of a part of the step's tokens. Ranks
  // that share the same tokens only have terms of such a gradient: their squares would mean nothing.
  void watch_first(const graph::Parameter& parameter) {
    double parts = static_cast<double>(options_.micro_batches);
    for (const Axis axis : graph::kAllAxes) {
      if (graph_.mesh().size(axis) == 1 || graph_.placement(parameter.gradient, axis) != Placement::partial())
        continue;
      if (axis != Axis::kReplicate && axis != Axis::kShard) return;
      parts *= static_cast<double>(graph_.mesh().size(axis));
    }
    if (parts < 2) return;
    const auto writers = in_micro_batch_.find(parameter.gradient);
    if (writers == in_micro_batch_.end()) return;
    for (const size_t i : writers->second) {
      // Forward of further micro-batches may precede backward of the first.
      if (old_[i].phase == Phase::kForward && !options_.is_sequential) return;
    }
    size_t last = writers->second.back();
    // Sums over ranks are grouped later, in the place of the last one of their layer (group_collectives_pass).
    if (const Node writer = old_[last]; writer.op == &graph::Reshard::def) {
      for (size_t i = last; i < old_.size(); ++i) {
        if (old_[i].phase == writer.phase && old_[i].chunk == writer.chunk) last = i;
      }
    }
    Statistic statistic = of_parameter(Watched::kFirstGradient, StatisticsGroup::kNoise, parameter);
    statistic.parts = parts;
    measure(after(last), last, parameter.gradient, std::move(statistic), {.first = true});
  }

  // The digests of values that all norms of one kind read, and where these values are replicated.
  struct Digests {
    std::vector<ValueId> values = {};
    size_t last_norm = 0;
    graph::Placements placements = {};
  };
  // Makes norm `i` give a digest of its input too.
  void add_digest(size_t i, Digests& to) {
    const ValueId x = old_[i].inputs.front();
    to.values.push_back(add_digest(old_[i], x));
    for (const Axis axis : graph::kAllAxes) {
      if (graph_.mesh().size(axis) > 1 && graph_.placement(x, axis) != kWhole)
        to.placements.set(axis, Placement::partial());
    }
    to.last_norm = i;
  }
  // Joins them in a metric.
  void join(Digests&& digests, std::string name, graph::MetricKind kind) {
    if (digests.values.empty()) return;
    Value digest;
    digest.name = std::move(name);
    digest.dtype = DType::kI64;
    digest.shape = {1};
    digest.role = Role::kMetric;
    digest.placements = digests.placements;
    const ValueId id = graph_.add_value(std::move(digest));
    graph_.set_metric(kind, id);
    after_[digests.last_norm].push_back(node_like<ops::JoinDigests>(
        old_[digests.last_norm], {.digests = std::move(digests.values)}, {.digest = id}, {}));
  }

  bool is_norm_in_update(size_t i) const {
    return old_[i].phase == Phase::kUpdate && old_[i].op == &optim::SumOfSquares::def;
  }

  void watch_weights() {
    Digests digests{.placements = own_of(Value())};
    for (size_t i = 0; i < old_.size(); ++i) {
      if (!is_norm_in_update(i)) continue;
      const ValueId x = old_[i].inputs.front();
      const auto found = parameter_of_.find(x);
      if (found == parameter_of_.end()) continue;
      const graph::Parameter& parameter = graph_.parameters()[found->second];
      add_digest(i, digests);
      Statistic statistic = of_parameter(Watched::kWeight, StatisticsGroup::kWeights, parameter);
      // A stage without the head may have its table, as the embedding.
      const bool is_head = x == head_ || (parameter.role == graph::ParameterRole::kEmbedding &&
                                          !parameter.sharing.holders.empty());
      statistic.is_head = is_head;
      const Shape& shape = graph_.value(x).shape;
      measure(after_[i], i, x, std::move(statistic), {.row = is_head ? shape[shape.rank() - 1] : 0});
      watch_update(parameter);
    }
    join(std::move(digests), "weights_digest", graph::MetricKind::kWeightsDigest);
  }

  // Gradients after their sum over the ranks, where several hold the same.
  void watch_sums() {
    Digests digests{.placements = own_of(Value())};
    std::vector<size_t> norms;
    graph::Placements placements = digests.placements;
    for (size_t i = 0; i < old_.size(); ++i) {
      if (!is_norm_in_update(i) || parameter_of_.contains(old_[i].inputs.front())) continue;
      norms.push_back(i);
      for (const Axis axis : graph::kAllAxes) {
        if (graph_.placement(old_[i].inputs.front(), axis) != kWhole)
          placements.set(axis, Placement::partial());
      }
    }
    const bool has_replicas = std::any_of(graph::kAllAxes.begin(), graph::kAllAxes.end(), [&](Axis axis) {
      return graph_.mesh().size(axis) > 1 && placements[axis] == kWhole;
    });
    if (!has_replicas) return;
    for (const size_t i : norms) add_digest(i, digests);
    join(std::move(digests), "gradients_digest", graph::MetricKind::kGradientsDigest);
    watch_used_weights(norms.empty() ? 0 : norms.back());
  }

  // The weights as the step has read them: the update may round a wrong bit away.
  void watch_used_weights(size_t norm) {
    Digests digests{.last_norm = old_.size() - 1, .placements = own_of(Value())};
    for (const graph::Parameter& parameter : graph_.parameters()) {
      const auto writers = in_update_.find(parameter.value);
      if (writers == in_update_.end()) continue;
      const size_t first = writers->second.front();
      const Value& value = graph_.value(parameter.value);
      const int64_t blocks = (value.shape.elements() + ops::kDigestBlock - 1) / ops::kDigestBlock;
      const auto blocks_of = [&](DType dtype, std::string name) {
        Value out;
        out.name = std::move(name) + value.name;
        out.dtype = dtype;
        out.shape = {blocks};
        out.placements = own_of(value);
        return out;
      };
      const ValueId partials = graph_.add_value(blocks_of(DType::kF64, "used_squares."));
      digests.values.push_back(graph_.add_value(blocks_of(DType::kI64, "used_digests.")));
      before_[first].push_back(node_like<ops::SquaresAndDigests>(
          old_[norm], {.x = parameter.value}, {.partials = partials, .digests = digests.values.back()}, {}));
      for (const Axis axis : graph::kAllAxes) {
        if (graph_.mesh().size(axis) > 1 && graph_.placement(parameter.value, axis) != kWhole)
          digests.placements.set(axis, Placement::partial());
      }
    }
    join(std::move(digests), "used_weights_digest", graph::MetricKind::kUsedWeightsDigest);
  }

  // Makes a norm's node give the digest too; its id.
  ValueId add_digest(Node& norm, ValueId x) {
    const ValueId partials = norm.outputs.front();
    Value digests;
    digests.name = "digests." + graph_.value(x).name;
    digests.dtype = DType::kI64;
    digests.shape = graph_.value(partials).shape;
    digests.placements = graph_.value(partials).placements;
    const ValueId id = graph_.add_value(std::move(digests));
    norm = node_like<ops::SquaresAndDigests>(norm, {.x = x}, {.partials = partials, .digests = id}, {});
    return id;
  }

  void watch_update(const graph::Parameter& parameter) {
    const auto writers = in_update_.find(parameter.value);
    if (writers == in_update_.end()) return;
    const size_t first = writers->second.front(), last = writers->second.back();
    constexpr ops::SampleAttrs kAttrs{static_cast<int64_t>(StatisticsGroup::kWeights)};
    const Value& value = graph_.value(parameter.value);
    Value sample;
    sample.name = "sample." + value.name;
    sample.shape = {std::min(ops::kMostSampled, value.shape.elements())};
    sample.placements = own_of(value);
    const ValueId taken = graph_.add_value(std::move(sample));
    before_[first].push_back(node_like<ops::TakeSample>(old_[first], {.x = parameter.value, .mask = mask_},
                                                        {.sample = taken}, kAttrs));
    const ValueId table =
        add_table(of_parameter(Watched::kUpdate, StatisticsGroup::kWeights, parameter), value);
    after_[last].push_back(node_like<ops::SampleChange>(
        old_[last], {.x = parameter.value, .sample = taken, .mask = mask_}, {.table = table}, kAttrs));
  }

  // The input of the second layer of a feed-forward block, at node i.
  void read_by_linear(size_t i, ValueId x, ValueId weight) {
    const graph::Parameter* const parameter = parameter_at(weight);
    if (parameter == nullptr || parameter->role != graph::ParameterRole::kFfnOut) return;
    Statistic statistic{
        .what = Watched::kActivation, .group = StatisticsGroup::kActivations, .layer = old_[i].layer};
    statistic.tensor = graph_.value(parameter->value).name;
    measure(before_[i], i, x, std::move(statistic));
  }

  void watch_activations() {
    for (size_t i = 0; i < old_.size(); ++i) {
      if (old_[i].op != &ops::Quantize::def) continue;
      const auto out = graph::outputs_of<ops::Quantize>(old_[i]);
      if (out.row_codes != kNone) quantizes_[out.row_codes] = i;
    }
    // Codes that ranks put together.
    for (const Node& node : old_) {
      for (size_t i = 0; node.op == &graph::Reshard::def && i < node.inputs.size(); ++i) {
        const auto found = quantizes_.find(node.inputs[i]);
        if (found != quantizes_.end()) quantizes_[node.outputs[i]] = found->second;
      }
    }
    std::set<std::pair<int32_t, Watched>> seen;  // of attention, which may be in several steps
    const auto of_layer = [](Watched what, int32_t layer) {
      return Statistic{.what = what, .group = StatisticsGroup::kActivations, .layer = layer};
    };
    const auto attention = [&](size_t i, Watched what, ValueId x, int64_t part, int64_t head_dim,
                               double scale) {
      if (!seen.insert({old_[i].layer, what}).second) return;
      Statistic statistic = of_layer(what, old_[i].layer);
      statistic.scale = scale;
      measure(before_[i], i, x, std::move(statistic), {.part = part, .row = head_dim});
    };
    for (size_t i = 0; i < old_.size(); ++i) {
      const Node& node = old_[i];
      if (!is_of_forward(node)) continue;
      if (node.op == &ops::Attention::def) {
        const ValueId qkv = graph::inputs_of<ops::Attention>(node).qkv;
        const auto& attrs = node.attrs.as<ops::AttentionAttrs>();
        attention(i, Watched::kQueries, qkv, 0, attrs.head_dim, attrs.scale);
        attention(i, Watched::kKeys, qkv, 1, attrs.head_dim, 1);
      } else if (node.op == &ops::ContextAttention::def) {
        const auto in = graph::inputs_of<ops::ContextAttention>(node);
        const auto& attrs = node.attrs.as<ops::ContextAttentionAttrs>();
        attention(i, Watched::kQueries, in.q, -1, attrs.head_dim, attrs.scale);
        attention(i, Watched::kKeys, in.kv, 0, attrs.head_dim, 1);
      } else if (node.op == &ops::Linear::def) {
        const auto in = graph::inputs_of<ops::Linear>(node);
        read_by_linear(i, in.x, in.weight);
      } else if (node.op == &ops::ScaledLinear::def) {
        const auto in = graph::inputs_of<ops::ScaledLinear>(node);
        const size_t quantizes = quantizes_.at(in.x);
        read_by_linear(quantizes, old_[quantizes].inputs.front(),
                       old_[quantizes_.at(in.weight)].inputs.front());
      }
    }
  }

  // Finds the first node outside of each layer that reads its output. A norm that adds that output to the
  // residual produces the new residual stream.
  void watch_streams() {
    std::unordered_map<ValueId, int32_t> layer_of;
    std::set<int32_t> seen;
    for (size_t i = 0; i < old_.size(); ++i) {
      const Node& node = old_[i];
      if (!is_of_forward(node)) continue;
      for (const ValueId input : node.inputs) {
        if (input == kNone) continue;
        const Value& value = graph_.value(input);
        int32_t layer = kNone;
        if (value.passage == Value::Passage::kReceived) {
          layer = node.layer == kNone ? options_.last_layer : node.layer - 1;
        } else if (const auto made = layer_of.find(input); made != layer_of.end()) {
          layer = made->second;
        }
        const bool is_stream =
            value.shape.rank() == 2 && value.shape[1] == options_.width &&
            (value.dtype == DType::kF32 || value.dtype == DType::kBF16 || value.dtype == DType::kF16);
        if (layer < 0 || layer == node.layer || !is_stream || !seen.insert(layer).second) continue;
        const ValueId sum = stream_made_by(node);
        measure(sum == kNone ? before_[i] : after_[i], i, sum == kNone ? input : sum,
                {.what = Watched::kStream, .group = StatisticsGroup::kActivations, .layer = layer});
      }
      for (const ValueId output : node.outputs) {
        if (output != kNone && graph_.value(output).role == Role::kActivation) layer_of[output] = node.layer;
      }
    }
  }

  void insert() {
    graph_.nodes().clear();
    const auto append = [&](std::vector<Node>& nodes) {
      graph_.nodes().insert(graph_.nodes().end(), std::make_move_iterator(nodes.begin()),
                            std::make_move_iterator(nodes.end()));
    };
    for (size_t i = 0; i < old_.size(); ++i) {
      append(before_[i]);
      graph_.nodes().push_back(std::move(old_[i]));
      append(after_[i]);
    }
    renumber_producers(graph_);
  }

  Graph& graph_;
  const StatisticsOptions& options_;
  std::vector<Node> old_;
  std::vector<std::vector<Node>> before_, after_;
  std::unordered_map<ValueId, size_t> parameter_of_;
  std::unordered_map<ValueId, size_t> quantizes_;  // by codes along rows: the node that makes them
  std::unordered_map<ValueId, std::vector<size_t>> in_micro_batch_, in_update_;  // writers of what persists
  ValueId mask_ = kNone, head_ = kNone;
  std::vector<Statistic> list_;
};

}  // namespace

std::vector<Statistic> statistics_pass(Graph& graph, const StatisticsOptions& options) {
  return StatisticsAdder(graph, options).run();
}

void write_statistics_mask(const Executor& executor, size_t program, int64_t mask) {
  const ValueId value = executor.program(program).graph.metric(graph::MetricKind::kStatisticsMask);
  if (value != kNone) executor.upload(program, value, &mask, sizeof mask);
}

}  // namespace strata::program
