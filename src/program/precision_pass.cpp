#include "program/precision_pass.h"

#include <algorithm>
#include <map>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "graph/reshard.h"
#include "graph/shard.h"
#include "models/parametrization.h"
#include "ops/expert_dispatch/expert_dispatch.h"
#include "ops/linear/linear.h"
#include "ops/scaled_experts/scaled_experts.h"
#include "optim/delayed_scale/delayed_scale.h"
#include "program/codes.h"
#include "program/expert_places.h"
#include "program/passes.h"

namespace strata::program {
namespace {

using graph::Axis;
using graph::Graph;
using graph::kNone;
using graph::Node;
using graph::Phase;
using graph::Placement;
using graph::Role;
using graph::Value;
using graph::ValueId;
using quantize::ScaleRule;

// A recipe as experts take it, with the rules of groups of pairs along columns. Ranks and passes have parts of the pairs
// only, so activations with one scale a tensor have one a row instead, as torchao's grouped matmuls (torchao 0.18,
// prototype/moe_training, FP8_ROWWISE); with nvfp4 besides those of blocks.
quantize::Recipe recipe_of_experts(quantize::Recipe recipe) {
  for (quantize::QuantizedOperand* const operand : {&recipe.input, &recipe.gradient}) {
    ScaleRule& rule = operand->along_rows;
    if (rule.needs() == ScaleRule::Needs::kTensor)
      rule = rule.format() == quantize::Format::kE2M1 ? ScaleRule::nvfp4_by_row()
                                                      : ScaleRule::row(rule.format());
    operand->along_columns = rule;
  }
  return recipe;
}

class PrecisionPass {
 public:
  PrecisionPass(Graph& graph, const Precision& precision, int64_t sequence_length, const Words& words)
      : graph_(graph),
        precision_(precision),
        recipe_(precision.recipe),
        of_experts_(recipe_of_experts(precision.recipe)),
        words_(words),
        codes_(graph, precision.recipe.name, sequence_length, words),
        expert_places_(graph, codes_, sequence_length, words) {
    for (size_t i = 0; i < graph.parameters().size(); ++i) {
      const graph::Parameter& parameter = graph.parameters()[i];
      // Recipes leave all but the matmuls of attention and feed-forward blocks in the type of activations (DeepSeek-V3,
      // section 3.3.1; Transformer Engine).
      if (!models::takes_recipe(parameter.role) ||
          precision.keeps(graph.value(parameter.value).name, parameter))
        continue;
      taken_.insert({parameter.value, i});
      if (parameter.gradient != kNone) gradient_of_.insert({parameter.gradient, i});
    }
  }

  void run() {
    const std::vector<Node> old = std::move(graph_.nodes());
    graph_.nodes().clear();
    find_terms(old);
    for (const Node& node : old) find_readers(node);
    for (const Node& node : old) {
      now_ = {node.phase, node.layer, node.chunk};
      mark(graph_, now_);
      if (!replace(node)) graph_.nodes().push_back(node);
    }
    follow_histories();
    mark(graph_, Marks{});
    renumber_producers(graph_);
  }

  // The histories that it has added.
  std::vector<optim::State> states() && { return std::move(states_); }

 private:
  // The parameter that a weight is of.
  ValueId parameter_of(ValueId weight) const {
    const ValueId whole_of = graph_.value(weight).sharding.whole_of;
    return whole_of == kNone ? weight : whole_of;
  }

  // The history of a linear layer's "input", "weight" or "gradient"; kNone: the recipe has none. A tensor that several
  // layers read has that of the first.
  ValueId history_of(ValueId weight, std::string_view tensor) {
    if (!recipe_.is_delayed()) return kNone;
    const ValueId parameter = parameter_of(weight);
    const Value& of = graph_.value(parameter);
    const std::string state = fmt::format("history_{}", tensor);
    const std::string name = fmt::format("{}.{}", state, of.name);
    const auto [slot, is_new] = histories_.try_emplace(name, kNone);
    if (!is_new) return slot->second;
    Value history;
    history.name = name;
    history.shape = {1, quantize::delayed_state_size(precision_.history)};
    history.role = Role::kState;
    slot->second = graph_.add_value(std::move(history));
    states_.push_back({parameter, slot->second, state, 0, of.shape[0], optim::StateLayout::kTensor});
    return slot->second;
  }

  // After a step, the history takes what ranks have found. A `role` that outlives micro-batches: kMetric, over which they
  // accumulate it, or kEncoded, for values that are found once after each update.
  void follow(ValueId history, ValueId found, Role role) {
    Value& value = graph_.value(found);
    value.role = role;
    value.producer = kNone;
    value.name = "greatest." + graph_.value(history).name;
    for (const auto& one : followed_)
      STRATA_CHECK(one.first != history, "two tensors have {}", graph_.value(history).name);
    followed_.emplace_back(history, found);
  }

  void follow_histories() {
    if (followed_.empty()) return;
    mark(graph_, {.phase = Phase::kUpdate});
    std::vector<ValueId> found;
    for (const auto& one : followed_) found.push_back(one.second);
    const std::vector<ValueId> greatest = codes_.greatest_of_ranks(std::move(found));
    const ValueId decision = graph_.metric(graph::MetricKind::kDecision);
    for (size_t i = 0; i < followed_.size(); ++i) {
      const ValueId history = followed_[i].first;
      graph::add_into<optim::FollowHistory>(
          graph_, {.history = history, .greatest = greatest[i], .decision = decision}, {.history = history});
    }
  }

  bool takes(ValueId weight) const { return taken_.contains(parameter_of(weight)); }
  bool takes_gradient(const Node& node) const {
    return recipe_.quantizes_weight_gradient && gradient_of_.contains(node.outputs.front());
  }

  // Gradients of one micro-batch, which a reshard adds to the parameter's.
  void find_terms(const std::vector<Node>& nodes) {
    for (const Node& node : nodes) {
      if (node.op != &graph::Reshard::def || node.inputs.size() != 1) continue;
      const auto found = gradient_of_.find(node.outputs.front());
      if (found != gradient_of_.end() && graph_.value(node.inputs.front()).role == Role::kTerms)
        gradient_of_.insert({node.inputs.front(), found->second});
    }
  }

  // In which directions matmuls read a value's codes.
  struct Readers {
    bool rows = false, columns = false;
  };
  // Who reads rows of experts: how often in all, how often matmuls that take codes, and as which operand.
  struct ExpertReaders {
    int all = 0, of_codes = 0;
    const quantize::QuantizedOperand* operand = nullptr;
  };
  void find_readers(const Node& node) {
    for (const ValueId input : node.inputs)
      if (input != kNone) ++expert_readers_[input].all;
    expert_places_.note(node);
    find_experts<ops::ExpertsIn, ops::ExpertsInGradInput, ops::ExpertsInGradWeight>(node);
    find_experts<ops::ExpertsOut, ops::ExpertsOutGradInput, ops::ExpertsOutGradWeight>(node);
    if (node.op == &ops::Linear::def && takes(graph::inputs_of<ops::Linear>(node).weight)) {
      readers_[graph::inputs_of<ops::Linear>(node).x].rows = true;
    } else if (node.op == &ops::LinearGradInput::def &&
               takes(graph::inputs_of<ops::LinearGradInput>(node).weight)) {
      readers_[graph::inputs_of<ops::LinearGradInput>(node).dy].rows = true;
    } else if (node.op == &ops::LinearGradWeight::def && takes_gradient(node)) {
      const auto in = graph::inputs_of<ops::LinearGradWeight>(node);
      readers_[in.x].columns = true;
      readers_[in.dy].columns = true;
    }
  }

  template <typename Product, typename GradInput, typename GradWeight>
  void find_experts(const Node& node) {
    const auto reads = [&](ValueId rows, const quantize::QuantizedOperand& operand) {
      ExpertReaders& readers = expert_readers_[rows];
      ++readers.of_codes;
      readers.operand = &operand;
      if (shares_rows(operand)) readers_[rows].rows = true;
    };
    if (node.op == &Product::def && takes(graph::inputs_of<Product>(node).weight)) {
      reads(graph::inputs_of<Product>(node).x, of_experts_.input);
    } else if (node.op == &GradInput::def && takes(graph::inputs_of<GradInput>(node).weight)) {
      reads(graph::inputs_of<GradInput>(node).dy, of_experts_.gradient);
    } else if (node.op == &GradWeight::def && takes_gradient(node)) {
      reads(graph::inputs_of<GradWeight>(node).dy, of_experts_.gradient);
      reads(graph::inputs_of<GradWeight>(node).x, of_experts_.input);
    }
  }

  // The operand of other matmuls that has the same codes along rows; nullptr: none.
  const quantize::QuantizedOperand* shares_rows(const quantize::QuantizedOperand& of_experts) const {
    const quantize::QuantizedOperand& other =
        &of_experts == &of_experts_.input ? recipe_.input : recipe_.gradient;
    return other.along_rows == of_experts.along_rows ? &other : nullptr;
  }

  bool replace(const Node& node) {
    return replace_linear(node) || replace_dispatch(node) ||
           replace_experts<ops::ExpertsIn, ops::ExpertsInGradInput, ops::ExpertsInGradWeight,
                           ops::ScaledExpertsIn, ops::ScaledExpertsInGradInput,
                           ops::ScaledExpertsInGradWeight>(node) ||
           replace_experts<ops::ExpertsOut, ops::ExpertsOutGradInput, ops::ExpertsOutGradWeight,
                           ops::ScaledExpertsOut, ops::ScaledExpertsOutGradInput,
                           ops::ScaledExpertsOutGradWeight>(node);
  }

  template <typename Product, typename GradInput, typename GradWeight, typename ScaledProduct,
            typename ScaledGradInput, typename ScaledGradWeight>
  bool replace_experts(const Node& node) {
    // The gradients of what experts return have a row a token.
    constexpr bool kGradientsByPair = std::is_same_v<Product, ops::ExpertsIn>;
    const auto rows_of = [&](const auto& in) {
      return ExpertRows{node.attrs.as<ops::ExpertsAttrs>(), in.ids, in.offsets, kGradientsByPair};
    };
    if (node.op == &Product::def) {
      const auto in = graph::inputs_of<Product>(node);
      if (!takes(in.weight)) return false;
      const Codes x = expert_rows(in.x, of_experts_.input),
                  weight = weight_codes(in.weight, Direction::kRows);
      graph::add_into<ScaledProduct>(graph_,
                                     {.x = x.codes,
                                      .x_scales = x.scales,
                                      .ids = in.ids,
                                      .weight = weight.codes,
                                      .weight_scales = weight.scales,
                                      .offsets = in.offsets,
                                      .x_greatest = x.greatest,
                                      .weight_greatest = weight.greatest},
                                     {.y = node.outputs.front()}, expert_attrs_of(x, weight, node));
      return true;
    }
    if (node.op == &GradInput::def) {
      const auto in = graph::inputs_of<GradInput>(node);
      if (!takes(in.weight)) return false;
      const Codes dy = expert_gradient(in.dy, rows_of(in)),
                  weight = weight_codes(in.weight, Direction::kColumns);
      graph::add_into<ScaledGradInput>(graph_,
                                       {.dy = dy.codes,
                                        .dy_scales = dy.scales,
                                        .ids = in.ids,
                                        .weight = weight.codes,
                                        .weight_scales = weight.scales,
                                        .offsets = in.offsets,
                                        .dy_greatest = dy.greatest,
                                        .weight_greatest = weight.greatest},
                                       {.dx = node.outputs.front()}, expert_attrs_of(dy, weight, node));
      return true;
    }
    if (node.op != &GradWeight::def || !takes_gradient(node)) return false;
    const auto in = graph::inputs_of<GradWeight>(node);
    const Codes dy = expert_gradient(in.dy, rows_of(in)), x = expert_rows(in.x, of_experts_.input);
    ops::ScaledExpertsAttrs attrs = expert_attrs_of(dy, x, node);
    attrs.first_along_pairs = of_experts_.gradient.along_columns;
    attrs.second_along_pairs = of_experts_.input.along_columns;
    attrs.pair_rounding = {.transforms_columns = recipe_.transforms_weight_gradient,
                           .stochastic = dy.places != kNone,
                           .stream = dy.stream};
    graph::add_into<ScaledGradWeight>(graph_,
                                      {.dy = dy.codes,
                                       .dy_scales = dy.scales,
                                       .x = x.codes,
                                       .x_scales = x.scales,
                                       .ids = in.ids,
                                       .offsets = in.offsets,
                                       .dy_greatest = dy.greatest,
                                       .x_greatest = x.greatest,
                                       .places = dy.places,
                                       .rank = dy.rank},
                                      {.dw = node.outputs.front()}, attrs);
    return true;
  }

  ops::ScaledExpertsAttrs expert_attrs_of(const Codes& first, const Codes& second, const Node& node) const {
    return {node.attrs.as<ops::ExpertsAttrs>(),      first.attrs, second.attrs, {}, {}, {},
            graph_.value(node.outputs.front()).dtype};
  }

  // Rows that only matmuls of codes read on the ranks of their experts travel as these.
  bool replace_dispatch(const Node& node) {
    if (node.op != &ops::DispatchRows::def || !precision_.dispatches_codes) return false;
    const ValueId rows = node.outputs.front();
    const ExpertReaders readers = expert_readers_[rows];
    if (readers.of_codes == 0 || readers.of_codes != readers.all) return false;
    // A record has elements of whole bytes and one kind of scales.
    if (readers.operand->along_rows.format() == quantize::Format::kE2M1) return false;
    const auto in = graph::inputs_of<ops::DispatchRows>(node);
    Codes codes = expert_rows(in.x, *readers.operand);
    const auto arrived =
        graph::add<ops::DispatchRows>(graph_, {.x = codes.codes, .way = in.way, .scales = codes.scales},
                                      node.attrs.as<ops::DispatchAttrs>());
    codes.codes = arrived.rows;
    codes.scales = arrived.row_scales;
    made_of_experts_.emplace(rows, codes);
    return true;
  }

  // The codes of rows of experts, one a token or a pair, or of the rows that are sent to them.
  Codes expert_gradient(ValueId dy, const ExpertRows& rows) {
    if (!recipe_.rounds_gradients_stochastically || made_of_experts_.contains(dy))
      return expert_rows(dy, of_experts_.gradient);
    return expert_rows(dy, of_experts_.gradient,
                       {.stochastic = true, .places = expert_places_.of(rows, marks_of_rows())});
  }
  // What input gradients read too is made before the weight gradients.
  Marks marks_of_rows() const {
    Marks marks = now_;
    if (marks.phase == Phase::kWeightGrad) marks.phase = Phase::kInputGrad;
    return marks;
  }
  Codes expert_rows(ValueId x, const quantize::QuantizedOperand& operand, const Handling& handling = {}) {
    if (const auto found = made_of_experts_.find(x); found != made_of_experts_.end()) return found->second;
    if (const quantize::QuantizedOperand* const other = shares_rows(operand)) {
      readers_[x].rows = true;
      return activation(x, *other, Direction::kRows, kNone);
    }
    const Codes codes = quantized(x, {operand.along_rows}, true, false, marks_of_rows(), handling).rows;
    return made_of_experts_.emplace(x, codes).first->second;
  }

  bool replace_linear(const Node& node) {
    if (node.op == &ops::Linear::def) {
      const auto in = graph::inputs_of<ops::Linear>(node);
      if (!takes(in.weight)) return false;
      const Codes x = activation(in.x, recipe_.input, Direction::kRows, in.weight),
                  weight = weight_codes(in.weight, Direction::kRows);
      graph::add_into<ops::ScaledLinear>(graph_,
                                         {.x = x.codes,
                                          .x_scales = x.scales,
                                          .weight = weight.codes,
                                          .weight_scales = weight.scales,
                                          .x_greatest = x.greatest,
                                          .weight_greatest = weight.greatest,
                                          .bias = in.bias},
                                         {.y = node.outputs.front()}, attrs_of(x, weight, node));
      return true;
    }
    if (node.op == &ops::LinearGradInput::def) {
      const auto in = graph::inputs_of<ops::LinearGradInput>(node);
      if (!takes(in.weight)) return false;
      const Codes dy = activation(in.dy, recipe_.gradient, Direction::kRows, in.weight),
                  weight = weight_codes(in.weight, Direction::kColumns);
      graph::add_into<ops::ScaledLinearGradInput>(graph_,
                                                  {.dy = dy.codes,
                                                   .dy_scales = dy.scales,
                                                   .weight = weight.codes,
                                                   .weight_scales = weight.scales,
                                                   .dy_greatest = dy.greatest,
                                                   .weight_greatest = weight.greatest},
                                                  {.dx = node.outputs.front()}, attrs_of(dy, weight, node));
      return true;
    }
    if (node.op != &ops::LinearGradWeight::def || !takes_gradient(node)) return false;
    const auto in = graph::inputs_of<ops::LinearGradWeight>(node);
    const ValueId weight = graph_.parameters()[gradient_of_.at(node.outputs.front())].value;
    const Codes dy = activation(in.dy, recipe_.gradient, Direction::kColumns, weight),
                x = activation(in.x, recipe_.input, Direction::kColumns, weight);
    graph::add_into<ops::ScaledLinearGradWeight>(graph_,
                                                 {.dy = dy.codes,
                                                  .dy_scales = dy.scales,
                                                  .x = x.codes,
                                                  .x_scales = x.scales,
                                                  .dy_greatest = dy.greatest,
                                                  .x_greatest = x.greatest},
                                                 {.dw = node.outputs.front()}, attrs_of(dy, x, node));
    return true;
  }

  ops::ScaledAttrs attrs_of(const Codes& first, const Codes& second, const Node& node) const {
    return {.first = first.attrs,
            .second = second.attrs,
            .out = graph_.value(node.outputs.front()).dtype,
            .sums = precision_.sums};
  }

  QuantizedTensor quantized(ValueId x, const quantize::QuantizedOperand& operand, bool rows, bool columns,
                            const Marks& marks, const Handling& handling = {}) {
    const QuantizedTensor made = codes_.make(x, operand, rows, columns, marks, handling);
    mark(graph_, now_);
    return made;
  }

  // The codes of an activation or of its gradient; all that are wanted of it are made where the first are. `weight`: of the
  // layer that reads them.
  Codes activation(ValueId x, const quantize::QuantizedOperand& operand, Direction direction,
                   ValueId weight) {
    const Readers& readers = readers_.at(x);
    const bool rows = readers.rows || (readers.columns && !operand.along_columns),
               columns = readers.columns && operand.along_columns.has_value();
    auto found = made_.find(x);
    if (found == made_.end()) {
      Marks marks = now_;
      // What an input gradient reads is made before the weight gradients, which may come much later.
      if (marks.phase == Phase::kWeightGrad && readers.rows) marks.phase = Phase::kInputGrad;
      const bool is_gradient = &operand == &recipe_.gradient;
      const ValueId history = history_of(weight, is_gradient ? "gradient" : "input");
      const Handling handling{.transforms_columns = columns && recipe_.transforms_weight_gradient,
                              .stochastic = is_gradient && recipe_.rounds_gradients_stochastically,
                              .history = history,
                              .finds_greatest = history != kNone};
      found = made_.emplace(x, quantized(x, operand, rows, columns, marks, handling)).first;
      if (history != kNone) follow(history, found->second.found, Role::kMetric);
    }
    return found->second.read(operand, direction);
  }

  // Weights are quantised after each update; those that are whole only for a while, by forward and again by backward.
  Codes weight_codes(ValueId weight, Direction direction) {
    const quantize::QuantizedOperand& operand = recipe_.weight;
    const bool is_temporary = graph::is_temporary(graph_.value(weight).role);
    const bool columns = operand.along_columns.has_value();
    if (gathers_codes(weight)) return gathered_codes(weight, direction);
    if (!is_temporary) return encoded(weight, columns).read(operand, direction);
    const bool backward = now_.phase != Phase::kForward;
    const std::pair key(weight, backward);
    auto found = made_while_whole_.find(key);
    if (found == made_while_whole_.end()) {
      const bool is_across = columns && backward;
      const ValueId history = history_of(weight, "weight");
      found = made_while_whole_
                  .emplace(key, quantized(weight, operand, !is_across, is_across, now_, {.history = history}))
                  .first;
      find_once(parameter_of(weight), history);
    }
    return found->second.read(operand, direction);
  }

  // The codes of a weight that are made after each update.
  const QuantizedTensor& encoded(ValueId weight, bool columns) {
    auto found = made_.find(weight);
    if (found != made_.end()) return found->second;
    const ValueId history = history_of(weight, "weight");
    const Handling handling{.history = history, .finds_greatest = history != kNone};
    const QuantizedTensor made =
        quantized(weight, recipe_.weight, true, columns, {.phase = Phase::kEncode}, handling);
    if (history != kNone) follow(history, made.found, Role::kEncoded);
    return made_.emplace(weight, made).first->second;
  }

  // The greatest magnitude of a parameter in shards whose codes are made while it is whole, of the shards.
  void find_once(ValueId parameter, ValueId history) {
    if (history == kNone || !found_once_.insert(parameter).second) return;
    const ValueId found = codes_.found_in(parameter, recipe_.weight.along_rows, {.phase = Phase::kEncode});
    mark(graph_, now_);
    follow(history, found, Role::kEncoded);
  }

  // Whether ranks that share a parameter can gather its codes: each quantises its shard, and blocks end where shards do.
  bool gathers_codes(ValueId weight) const {
    const ValueId shard = graph_.value(weight).sharding.whole_of;
    if (shard == kNone || precision_.gathers == Precision::Gathers::kWeights) return false;
    const bool fits = shards_end_blocks(shard);
    if (fits || precision_.gathers != Precision::Gathers::kCodes) return fits;
    throw ConfigError(
        "[{}] found fp8, but shards of {} end inside the blocks of the recipe {}; take another number of ranks, or "
        "\"auto\", which gathers such weights in fp32",
        words_.gather, graph_.value(shard).name, recipe_.name);
  }

  bool shards_end_blocks(ValueId shard) const {
    const Value& value = graph_.value(shard);
    const quantize::QuantizedOperand& operand = recipe_.weight;
    // Communicators move whole bytes.
    if (operand.along_rows.format() == quantize::Format::kE2M1 || !value.sharding.padding.joined.empty())
      return false;
    const auto ends_blocks = [&](int64_t extent) {
      if (extent == quantize::kWhole) extent = 1;
      const auto shares = graph::parts_on_rank(value, 0, graph_.mesh());
      Value whole = value;
      whole.placements.set(Axis::kShard, Placement::replicated());
      whole.sharding.padding = {};
      const auto parts = graph::parts_on_rank(whole, 0, graph_.mesh());
      const int64_t ranks = graph_.mesh().size(Axis::kShard);
      for (size_t i = 0; i < parts.size(); ++i)
        if (shares[i] * ranks != parts[i] || shares[i] % extent != 0) return false;
      return true;
    };
    return ends_blocks(operand.along_rows.block().rows) &&
           (!operand.along_columns || ends_blocks(operand.along_columns->block().columns));
  }

  Codes gathered_codes(ValueId weight, Direction direction) {
    const quantize::QuantizedOperand& operand = recipe_.weight;
    const ValueId parameter = graph_.value(weight).sharding.whole_of;
    Codes codes = encoded(parameter, operand.along_columns.has_value()).read(operand, direction);
    Marks marks = now_;
    if (!graph::is_temporary(graph_.value(weight).role)) {
      marks = {.phase = Phase::kEncode};
    } else if (marks.phase != Phase::kForward) {
      marks.phase = Phase::kRecompute;
    }
    mark(graph_, marks);
    codes.codes = gathered(codes.codes, weight);
    codes.scales = gathered(codes.scales, weight);
    mark(graph_, now_);
    return codes;
  }

  // What ranks have of codes or scales, put together where and for as long as `weight` is.
  ValueId gathered(ValueId shards, ValueId weight) {
    if (graph_.placement(shards, Axis::kShard) == Placement::replicated()) return shards;
    const auto [slot, is_new] = gathered_.try_emplace({shards, weight}, kNone);
    if (!is_new) return slot->second;
    const Value& like = graph_.value(weight);
    Value whole = graph_.value(shards);
    const Placement cut = whole.placements[Axis::kShard];
    whole.name = graph_.value(shards).name + like.name.substr(like.name.rfind('@'));
    whole.role = like.role;
    whole.placements.set(Axis::kShard, Placement::replicated());
    whole.sharding = {.whole_of = like.sharding.whole_of};
    slot->second = graph_.add_value(std::move(whole));
    graph::add_into<graph::Reshard>(graph_, {.x = {shards}}, {.moved = {slot->second}},
                                    {.axis = Axis::kShard, .from = cut, .to = Placement::replicated()});
    return slot->second;
  }

  Graph& graph_;
  const Precision& precision_;
  const quantize::Recipe& recipe_;
  const quantize::Recipe of_experts_;
  const Words& words_;
  CodeMaker codes_;
  ExpertPlaces expert_places_;
  Marks now_;
  std::unordered_map<ValueId, size_t> taken_, gradient_of_;
  std::unordered_map<ValueId, Readers> readers_;
  std::unordered_map<ValueId, ExpertReaders> expert_readers_;
  std::unordered_map<ValueId, QuantizedTensor> made_;
  std::unordered_map<ValueId, Codes> made_of_experts_;
  std::unordered_map<std::string, ValueId> histories_;  // by name
  std::vector<std::pair<ValueId, ValueId>> followed_;   // a history, and what ranks have found
  std::unordered_set<ValueId> found_once_;              // parameters
  std::vector<optim::State> states_;
  std::map<std::pair<ValueId, bool>, QuantizedTensor> made_while_whole_;
  std::map<std::pair<ValueId, ValueId>, ValueId>
      gathered_;  // by what ranks have, and the weight in whose place it is
};

}  // namespace

std::vector<optim::State> precision_pass(Graph& graph, const Precision& precision, int64_t sequence_length,
                                         const Words& words) {
  PrecisionPass pass(graph, precision, sequence_length, words);
  pass.run();
  return std::move(pass).states();
}

}  // namespace strata::program
