#include "ops/expert_dispatch/expert_dispatch.h"

#include <algorithm>

#include "device/expert_dispatch.h"
#include "device/op_run.h"
#include "ops/case_codes.h"
#include "ops/case_experts.h"
#include "ops/expert_dispatch/way.h"

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

namespace {

// One rank with all experts, and capacity for a share of its tokens in a pass.
ops::DispatchAttrs attrs_of(const ExpertSizes& s, double share) {
  const auto part = [share](int64_t n) {
    return std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(n)));
  };
  return {.tokens = s.tokens,
          .k = s.k,
          .experts = s.experts,
          .capacity = {part(s.tokens), std::max(s.k, part(s.tokens * s.k))}};
}

// The first pass of these ids.
struct Planned {
  Operand way, offsets;

  Planned(const ops::DispatchAttrs& attrs, const Operand& chosen) {
    graph::Graph graph;
    const graph::ValueId ids = add_operand(graph, "ids", DType::kI32, chosen.shape);
    const graph::ValueId weights = add_operand(graph, "weights", DType::kF32, chosen.shape);
    const auto made = graph::add<ops::PlanDispatch>(graph, {.ids = ids, .weights = weights}, attrs);
    const Binding table[] = {{&ops::PlanDispatch::def, [](const BindRequest& request) {
                                return bind_on_host(Bind<ops::PlanDispatch>(request));
                              }}};
    hardware::DeviceSpec spec;
    spec.threads = 1;
    OpRun op(std::move(graph), table, spec);
    for (int64_t i = 0; i < chosen.shape.elements(); ++i)
      op.data_as<int32_t>(ids)[i] = static_cast<int32_t>(chosen.content(i));
    std::fill_n(op.data_as<float>(weights), chosen.shape.elements(), 0.0f);
    op.run();
    const auto read = [&](graph::ValueId value) {
      const auto* const first = op.data_as<int32_t>(value);
      const int64_t count = op.graph().value(value).shape.elements();
      return i32_of(std::vector<int64_t>(first, first + count));
    };
    way = read(made.way);
    offsets = read(made.offsets);
  }
};

// Cases with capacity for all tokens, and for some of them; the others stay unchanged.
template <typename Add>
void each_capacity(const Add& add) {
  for (const ExpertSizes& s : expert_sizes()) {
    for (const double share : {1.0, 0.4})
      add(s, attrs_of(s, share), s.name + (share < 1 ? "_in_passes" : ""));
  }
}

}  // namespace

template <>
void cases<ops::PlanDispatch>(Cases& to) {
  each_capacity([&](const ExpertSizes& s, const ops::DispatchAttrs& attrs, const std::string& name) {
    // Gradients of a pass are those of its tokens.
    const bool is_whole = attrs.takes_any_routing();
    const Operand weights = f32({s.tokens, s.k});
    using Names = std::vector<OutputName<ops::PlanDispatch>>;
    to.add<ops::PlanDispatch>(
        "plan_dispatch" + name, {.ids = ids_of(s), .weights = is_whole ? weights : constant(weights)}, attrs,
        {.ragged = true, .opaque = {"way"}, .differentiable = is_whole ? Names{"weights"} : Names{}});
  });
  to.untimed<ops::PlanDispatch>(kRows);
}

template <>
void cases<ops::DispatchRows>(Cases& to) {
  each_capacity([&](const ExpertSizes& s, const ops::DispatchAttrs& attrs, const std::string& name) {
    to.add<ops::DispatchRows>("dispatch_rows" + name,
                              {.x = act({s.tokens, s.inputs}), .way = Planned(attrs, ids_of(s)).way}, attrs,
                              {.ragged = true});
    const ScaledOperand codes =
        scaled({quantize::ScaleRule::mx(quantize::Format::kE4M3)}, s.tokens, s.inputs);
    to.add<ops::DispatchRows>(
        "dispatch_rows_in_codes" + name,
        {.x = codes.codes, .way = Planned(attrs, ids_of(s)).way, .scales = codes.scales}, attrs,
        {.ragged = true, .differentiable = std::vector<OutputName<ops::DispatchRows>>{}});
  });
  to.untimed<ops::DispatchRows>(kRows);
}

template <>
void cases<ops::CombineRows>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    const ops::DispatchAttrs attrs = attrs_of(s, 1);
    to.add<ops::CombineRows>("combine_rows" + s.name,
                             {.rows = act({attrs.rows(), s.inputs}), .way = Planned(attrs, ids_of(s)).way},
                             attrs, {.ragged = true});
  }
  to.untimed<ops::CombineRows>(kRows);
}

template <>
void cases<ops::CombineSlotGrads>(Cases& to) {
  for (const ExpertSizes& s : expert_sizes()) {
    const ops::DispatchAttrs attrs = attrs_of(s, 1);
    const Planned planned(attrs, ids_of(s));
    to.add<ops::CombineSlotGrads>(
        "combine_slot_grads" + s.name,
        {.grads = f32({attrs.slots()}), .ids = ids_of(s), .offsets = planned.offsets, .way = planned.way},
        attrs, {.ragged = true});
  }
  to.untimed<ops::CombineSlotGrads>(kRows);
}

template <>
void cases<ops::RemainingTokens>(Cases& to) {
  each_capacity([&](const ExpertSizes& s, const ops::DispatchAttrs& attrs, const std::string& name) {
    to.add<ops::RemainingTokens>("remaining_tokens" + name, {.way = Planned(attrs, ids_of(s)).way}, attrs,
                                 {.ragged = true});
  });
  to.untimed<ops::RemainingTokens>(kFewNumbers);
}

template <>
void cases<ops::ExpertRounds>(Cases& to) {
  for (const int64_t begin : {0, 5}) {
    to.add<ops::ExpertRounds>(begin > 0 ? "expert_rounds_of_a_later_pass" : "expert_rounds",
                              {.way = i32_of({begin, 7, 2})}, {}, {.ragged = true});
  }
  to.untimed<ops::ExpertRounds>(kFewNumbers);
}

}  // namespace strata::device
