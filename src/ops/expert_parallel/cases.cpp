#include "ops/expert_parallel/expert_parallel.h"

#include "ops/activation/activation.h"
#include "ops/case_experts.h"
#include "ops/experts/experts.h"
#include "ops/router/router.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::OwnExperts>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    if (s.experts % 4 != 0) continue;
    // Eight ranks' experts, of which this is one. No axis of the mesh of a case cuts it.
    for (const bool first_is_summed : {false, true}) {
      to.add<ops::OwnExperts>(
          (first_is_summed ? "own_experts_of_the_last" : "own_experts") + s.name,
          {.ids = ids_of(s), .rank = rank_at({{Axis::kShard, 1}, {Axis::kContext, 1}})},
          {.axes = {{Axis::kShard, 2, first_is_summed}, {Axis::kContext, 2, !first_is_summed}},
           .experts = s.experts},
          {.ragged = true});
    }
  }
  to.untimed<ops::OwnExperts>(kFewNumbers);
}

template <>
void cases<ops::ExpertRounds>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes())
    to.add<ops::ExpertRounds>("expert_rounds" + s.name, {.end = i32_of({5, 3, 7, 2, 4, 0, 1, 1})}, {},
                              {.ragged = s.ragged});
  to.untimed<ops::ExpertRounds>(kFewNumbers);
}

namespace {

// Gated experts, all on one rank.
std::shared_ptr<const ops::ExpertBody> body_of(const ExpertSizes& s, const ops::ExpertRoom& room) {
  using graph::ParameterRole;
  ops::ExpertBodySpec spec{.rows = room.rows, .slots = room.slots, .width = s.inputs, .trains = true};
  spec.parameters = [s](graph::Graph& graph) {
    return std::vector{
        graph.add_parameter("up", ParameterRole::kExpertIn, {s.experts * 2 * s.outputs, s.inputs}, {}, {},
                            std::vector(static_cast<size_t>(2 * s.experts), s.outputs)),
        graph.add_parameter("down", ParameterRole::kExpertOut, {s.experts * s.inputs, s.outputs}, {})};
  };
  spec.build = [experts = s.experts](graph::Graph& graph, const ops::ExpertInputs& in) {
    const auto [rows, ids, offsets, weights, parameters] = in;
    const auto up = graph::add<ops::ExpertsIn>(
        graph, {.x = rows, .ids = ids, .weight = parameters[0], .offsets = offsets}, {experts});
    const auto hidden = ops::scale_rows(graph, ops::gated(graph, up.y, ActivationKind::kSilu), weights);
    return graph::add<ops::ExpertsOut>(
               graph, {.x = hidden, .ids = ids, .weight = parameters[1], .offsets = offsets}, {experts})
        .y;
  };
  return ops::make_expert_body(spec);
}

// One rank with all experts, and what the first round has left where all tokens are of it. `share`: of them
// that a round has room for.
struct SharedExperts {
  ops::ExpertParallelAttrs attrs;
  std::vector<Operand> parameters;

  SharedExperts(const ExpertSizes& s, double share)
      : parameters{f32({s.experts * 2 * s.outputs, s.inputs}), f32({s.experts * s.inputs, s.outputs})} {
    const auto part = [share](int64_t n) {
      return std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(n)));
    };
    const ops::ExpertRoom room{part(s.tokens), std::max(s.k, part(s.tokens * s.k))};
    attrs = {.body = body_of(s, room), .tokens = s.tokens, .k = s.k, .experts = s.experts, .room = room};
  }

  // The inputs of a gradient that reads these of the body.
  ops::ExpertParallelGrad::In<Sample> inputs(
      const ExpertSizes& s, std::initializer_list<const std::vector<graph::ValueId>*> lists) const {
    const ops::ExpertBody& body = *attrs.body;
    std::vector<Operand> of_body = parameters;
    for (const auto* list : lists) {
      for (const graph::ValueId value : *list) {
        const graph::Value& of = body.graph.value(value);
        Operand operand = f32(of.shape, of.segments);
        if (value == body.inputs.ids) {
          operand = ids_of(s);
          operand.shape = of.shape;
        } else if (value == body.inputs.offsets) {
          operand = i32_by(s.tokens + 1, [k = s.k](int64_t i) { return static_cast<double>(i * k); });
        }
        of_body.push_back(std::move(operand));
      }
    }
    const Operand rows = f32({s.tokens, s.inputs});
    return {.dy = rows,
            .x = rows,
            .ids = ids_of(s),
            .weights = f32({s.tokens, s.k}),
            .end = i32_of({s.tokens, 0}),
            .of_body = std::move(of_body)};
  }
};

}  // namespace

template <>
void cases<ops::ExpertParallel>(Cases& to) {
  using Op = ops::ExpertParallel;
  for (const ExpertSizes& s : expert_sizes()) {
    for (const double share : {1.0, 0.4}) {
      const SharedExperts shared(s, share);
      to.add<Op>("expert_parallel" + s.name + (share < 1 ? "_in_rounds" : ""),
                 {.x = f32({s.tokens, s.inputs}),
                  .ids = ids_of(s),
                  .weights = f32({s.tokens, s.k}),
                  .parameters = shared.parameters},
                 shared.attrs, {.ragged = true, .opaque = {"end"}});
      const int first = graph::position_of<Op::Out>("kept");
      for (int i = 0; i < static_cast<int>(shared.attrs.body->kept.size()); ++i)
        to.cases.back().opaque.push_back(first + i);
    }
  }
  to.untimed<Op>(kBody);
}

template <>
void cases<ops::ExpertParallelGradInput>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    const SharedExperts shared(s, 1);
    to.add<ops::ExpertParallelGradInput>("expert_parallel_grad_input" + s.name,
                                         shared.inputs(s, {&shared.attrs.body->kept}), shared.attrs,
                                         {.ragged = true});
  }
  to.untimed<ops::ExpertParallelGradInput>(kBody);
}

template <>
void cases<ops::ExpertParallelGradWeight>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    const SharedExperts shared(s, 1);
    const ops::ExpertBody& body = *shared.attrs.body;
    to.add<ops::ExpertParallelGradWeight>("expert_parallel_grad_weight" + s.name,
                                          shared.inputs(s, {&body.kept_for_weights, &body.handed}),
                                          shared.attrs, {.ragged = true});
  }
  to.untimed<ops::ExpertParallelGradWeight>(kBody);
}

}  // namespace strata::device
