#include "device/expert_rounds_plan.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tensor/arena.h"

namespace strata::device {
namespace {

using graph::kNone;
using graph::Node;
using graph::Phase;
using graph::position_of;
using graph::ValueId;
using ops::ExpertBody;
using ops::ExpertParallelAttrs;

class Planner {
 public:
  Planner(const BindRequest& request, std::span<const Binding> table)
      : request_(request), table_(table), body_(*request.view.attrs<ExpertParallelAttrs>().body) {
    plan_.attrs = request.view.attrs<ExpertParallelAttrs>();
    const graph::OpDef* op = request.view.node.op;
    plan_.step = op == &ops::ExpertParallel::def            ? RoundsStep::kForward
                 : op == &ops::ExpertParallelGradInput::def ? RoundsStep::kGradInput
                                                            : RoundsStep::kGradWeight;
    const graph::Value& rows = body_.graph.value(body_.inputs.rows);
    plan_.row_bytes = rows.shape[1] * size_of(rows.dtype);
  }

  RoundsPlan make() {
    plan_.where.resize(static_cast<size_t>(body_.graph.value_count()));
    place_operands();
    plan_.forward = bind(Phase::kForward, false);
    if (plan_.step != RoundsStep::kForward) plan_.input_grad = bind(Phase::kInputGrad, false);
    if (plan_.step == RoundsStep::kGradWeight) {
      plan_.weight_grad = bind(Phase::kWeightGrad, false);
      plan_.more_weight_grad = bind(Phase::kWeightGrad, true);
    }
    lay_out_scratch();
    for (auto* list : {&plan_.forward, &plan_.input_grad, &plan_.weight_grad, &plan_.more_weight_grad}) {
      for (BodyCall& call : *list) call.operands.push_back({plan_.kernel_scratch_at, kBodyScratch});
    }
    plan_.scratch_bytes = at_;
    return std::move(plan_);
  }

 private:
  void place_operands() {
    const auto inputs = static_cast<int>(request_.view.node.inputs.size());
    const auto outputs = static_cast<int>(request_.view.node.outputs.size());
    plan_.scratch_operand = inputs + outputs;
    const auto list = [&](const std::vector<ValueId>& values, int first) {
      for (const ValueId value : values) plan_.where[index(value)].first_round = first++;
      return first;
    };
    const auto always = [&](const std::vector<ValueId>& values, int first) {
      for (const ValueId value : values) {
        plan_.where[index(value)].first_round = plan_.where[index(value)].later_rounds = first++;
      }
      return first;
    };
    if (plan_.step == RoundsStep::kForward) {
      using Op = ops::ExpertParallel;
      const graph::View<Op> node(request_.view);
      plan_.x = position_of<Op::In>("x");
      plan_.ids = position_of<Op::In>("ids");
      plan_.weights = position_of<Op::In>("weights");
      always(body_.inputs.parameters, position_of<Op::In>("parameters"));
      plan_.y = inputs + position_of<Op::Out>("y");
      if (node.out.end) plan_.end = inputs + position_of<Op::Out>("end");
      const int kept = inputs + position_of<Op::Out>("kept");
      for (size_t i = 0; i < body_.kept.size(); ++i) {
        // Who only evaluates what could be trained keeps nothing.
        if (node.out.kept[i]) plan_.where[index(body_.kept[i])].first_round = kept + static_cast<int>(i);
      }
      return;
    }
    using Grad = ops::ExpertParallelGrad;
    plan_.dy = position_of<Grad::In>("dy");
    plan_.x = position_of<Grad::In>("x");
    plan_.ids = position_of<Grad::In>("ids");
    plan_.weights = position_of<Grad::In>("weights");
    plan_.end = position_of<Grad::In>("end");
    int next = always(body_.inputs.parameters, position_of<Grad::In>("of_body"));
    if (plan_.step == RoundsStep::kGradInput) {
      using Op = ops::ExpertParallelGradInput;
      list(body_.kept, next);
      plan_.dx = inputs + position_of<Op::Out>("dx");
      plan_.dweights = inputs + position_of<Op::Out>("dweights");
      list(body_.handed, inputs + position_of<Op::Out>("handed"));
    } else {
      next = list(body_.kept_for_weights, next);
      list(body_.handed, next);
      always(body_.parameter_grads, inputs + position_of<ops::ExpertParallelGradWeight::Out>("dw"));
    }
  }

  std::vector<BodyCall> bind(Phase phase, bool adds) {
    std::vector<BodyCall> calls;
    std::vector<bool> written(static_cast<size_t>(body_.graph.value_count()), adds);
    for (const Node& node : body_.graph.nodes()) {
      if (node.phase != phase) continue;
      BindRequest inner{{body_.graph, node},
                        std::vector<bool>(node.outputs.size(), false),
                        request_.cache,
                        request_.device};
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        if (node.outputs[o] == kNone) continue;
        const auto gradient =
            std::find(body_.parameter_grads.begin(), body_.parameter_grads.end(), node.outputs[o]);
        if (gradient == body_.parameter_grads.end()) continue;
        const auto of = static_cast<size_t>(gradient - body_.parameter_grads.begin());
        inner.accumulate[o] = written[index(node.outputs[o])] || request_.accumulate[of];
        written[index(node.outputs[o])] = true;
      }
      BodyCall call{find_binding(table_, *node.op).bind(inner), {}};
      for (const auto* ids : {&node.inputs, &node.outputs}) {
        for (const ValueId id : *ids)
          call.operands.push_back(id == kNone ? Location{} : Location{0, base_of(id)});
      }
      kernel_scratch_ = std::max(kernel_scratch_, call.kernel.scratch_bytes);
      calls.push_back(std::move(call));
    }
    return calls;
  }

  int64_t take(int64_t bytes) {
    const int64_t place = at_;
    at_ += align_up(bytes, kBufferAlignment);
    return place;
  }

  void lay_out_scratch() {
    const ExpertParallelAttrs& a = plan_.attrs;
    plan_.own_records_at = take(a.tokens * Hop::words_of(a.k) * 4);
    plan_.own_count_at = take(8);
    plan_.by_token_at = take((a.tokens + 1) * 4);
    plan_.places_at = take(a.rows() * 4);
    plan_.ends_at = take((a.ranks + 1) * 8);
    plan_.room_at = take(2 * a.ranks * 8);
    if (plan_.step == RoundsStep::kGradInput) plan_.row_grads_at = take(a.rows() * a.hits() * 4);
    add_hops();
    // What this step's nodes touch and the node has no operand for, in some round.
    const bool one_round = a.has_room_for_all();
    const bool differentiates = plan_.step != RoundsStep::kForward;
    for (ValueId value = 0; value < body_.graph.value_count(); ++value) {
      BodyValue& where = plan_.where[index(value)];
      const bool is_backward = plan_.step == RoundsStep::kForward && !made_in_forward(value);
      const bool elsewhere = where.first_round >= 0 && (where.later_rounds >= 0 || one_round);
      if (is_backward || elsewhere) continue;
      if (differentiates && one_round && !touched_in_first_round(value)) continue;
      // Later rounds have what it was, and write the same there.
      if (const auto was = body_.again.find(value); was != body_.again.end()) {
        where.scratch = plan_.where[index(was->second)].scratch;
        if (where.scratch >= 0) continue;
      }
      where.scratch = take(body_.graph.value(value).bytes());
    }
    plan_.kernel_scratch_at = take(kernel_scratch_);
  }

  void add_hops() {
    const ExpertParallelAttrs& a = plan_.attrs;
    const int64_t own = a.own_experts();
    int64_t entries = a.tokens, entry_slots = a.k;
    const auto add = [&](const Hop& hop) {
      HopPlan of{.hop = hop, .entry_slots = entry_slots};
      of.entries_at = take(hop.all_rows() * 4);
      of.counts_at = take(hop.peers * 8);
      of.back_begin_at = take(entries * 4);
      of.back_end_at = take(entries * 4);
      of.back_at = take(entries * std::min(entry_slots, hop.peers) * 4);
      of.sent_at = take(hop.all_rows() * hop.words() * 4);
      of.arrived_at = take(hop.all_rows() * hop.words() * 4);
      of.arrived_counts_at = take(hop.peers * 8);
      if (plan_.step == RoundsStep::kGradInput) {
        of.grads_at = take(entries * entry_slots * 4);
        of.returned_grads_at = take(hop.all_rows() * hop.hits * 4);
      }
      entries = hop.all_rows();
      entry_slots = hop.hits;
      plan_.hops.push_back(of);
    };
    if (!a.by_nodes()) return add({a.ranks, a.room.rows, own, a.hits()});
    const int64_t nodes = a.ranks / a.node_ranks, of_node = a.node_ranks * own;
    add({nodes, std::min(a.tokens, a.node_ranks * a.room.rows), of_node, std::min(a.k, of_node)});
    plan_.between_at = take(entries * plan_.row_bytes);
    add({a.node_ranks, nodes * a.room.rows, own, a.hits()});
  }

  bool made_in_forward(ValueId value) const {
    const ops::ExpertInputs& in = body_.inputs;
    if (value == in.rows || value == in.ids || value == in.offsets || value == in.weights) return true;
    return touched(value, Phase::kForward);
  }
  bool touched_in_first_round(ValueId value) const {
    return value == body_.result_grad ||
           touched(value, plan_.step == RoundsStep::kGradInput ? Phase::kInputGrad : Phase::kWeightGrad);
  }
  bool touched(ValueId value, Phase phase) const {
    return std::any_of(body_.graph.nodes().begin(), body_.graph.nodes().end(), [&](const Node& node) {
      const auto has = [&](const std::vector<ValueId>& list) {
        return std::find(list.begin(), list.end(), value) != list.end();
      };
      return node.phase == phase && (has(node.inputs) || has(node.outputs));
    });
  }

  static size_t index(ValueId value) { return static_cast<size_t>(value); }

  const BindRequest& request_;
  const std::span<const Binding> table_;
  const ExpertBody& body_;
  RoundsPlan plan_;
  int64_t at_ = 0, kernel_scratch_ = 0;
};

}  // namespace

RoundsPlan plan_rounds(const BindRequest& request, std::span<const Binding> table) {
  return Planner(request, table).make();
}

}  // namespace strata::device
