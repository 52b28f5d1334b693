#include "optim/stored/stored.h"

#include <numeric>

#include "optim/update_rules.h"

namespace strata::optim {
namespace {

// Whether an entry of a state is for a block of elements.
bool has_blocks(const std::vector<StateSpec>& states) {
  return std::any_of(states.begin(), states.end(), [](const StateSpec& state) { return state.block > 0; });
}

std::string_view scale_name(std::string_view moment) {
  if (moment == "m") return "m_scale";
  if (moment == "v") return "v_scale";
  STRATA_CHECK(moment == "momentum", "the state {} has no scales", moment);
  return "momentum_scale";
}

Outputs<StoredUpdate> infer_stored(const View<StoredUpdate>& node) {
  const Value& parameter = *node.in.parameter;
  std::vector<const Value*> states;
  for (const graph::Ref& state : node.in.states) states.push_back(state.value);
  const auto wanted = stored_states(node.attrs.rule, shape_of_rows(node.attrs, parameter.shape));
  require(node, states.size() == wanted.size(), "the states must be those of the optimizer");
  require(node, !node.attrs.rule.storage.is_stochastic() || node.in.rank.present(),
          "stochastic rounding reads the rank");
  check_update(node.untyped(), parameter, *node.in.gradient, states, wanted);
  for (size_t i = 0; i < wanted.size(); ++i)
    require(node, states[i]->dtype == wanted[i].dtype, "a state has another type than the optimizer's");
  Outputs<StoredUpdate> out{.parameter = {parameter.dtype, parameter.shape}, .states = {}};
  for (size_t i = 0; i < wanted.size(); ++i)
    out.states.push_back({states[i]->dtype, states[i]->shape, {}, false, -1, wanted[i].name});
  return out;
}

Cost cost_stored(const View<StoredUpdate>& node) {
  const Value& parameter = *node.in.parameter;
  const UpdateElements own(node.attrs, parameter.shape);
  const RowRange range = row_range(node.attrs, parameter.shape);
  const auto elements = static_cast<double>(own.count);
  Cost cost{8 * elements, elements * (2 * static_cast<double>(size_of(node.attrs.rule.storage.weights)) + 4)};
  const double share =
      range.state_rows > 0 ? static_cast<double>(range.rows) / static_cast<double>(range.state_rows) : 0;
  for (const graph::Ref& state : node.in.states)
    cost.bytes += 2 * share * static_cast<double>(state->bytes());
  return cost;
}

// States of blocks are cut by rows that end where blocks do.
Splits<StoredUpdate> placements_stored(const View<StoredUpdate>& node, Axis axis) {
  const Value& parameter = *node.in.parameter;
  Splits<StoredUpdate> splits;
  const auto add_split = [&](Placement shard) {
    auto split = update_split<StoredUpdate>(shard);
    split.in.rank = kR;
    splits.push_back(std::move(split));
  };
  if (stored_unit(node.attrs.rule) == Definition::Unit::kRows) {
    for (int dim = 0; dim < parameter.shape.rank(); ++dim) add_split(Placement::sharded(dim));
    return splits;
  }
  const bool ends_with_blocks = parameter.shape.elements() / parameter.shape[0] *
                                    std::max<int64_t>(1, parameter.sharding.padding.alignment) %
                                    kMomentBlock ==
                                0;
  if (ends_with_blocks || is_distributed_along(node.attrs, parameter, axis)) add_split(kS0);
  return splits;
}

UpdateAttrs localize_stored(const View<StoredUpdate>& node) {
  UpdateAttrs attrs = localized(node.attrs, *node.in.parameter, node.graph.mesh());
  if (attrs.rule.storage.is_stochastic())
    attrs.held = std::make_shared<const HeldElements>(held_elements(*node.in.parameter, node.graph.mesh()));
  return attrs;
}

}  // namespace

std::vector<StateSpec> stored_states(const UpdateRule& rule, const Shape& rows) {
  const Storage& storage = rule.storage;
  const std::vector<StateSpec> own = rule.optimizer.definition().states(rows);
  std::vector<StateSpec> states;
  for (const StateSpec& state : own) {
    StateSpec stored = state;
    const bool is_moment = state.layout == StateLayout::kElements && state.dtype == DType::kF32;
    if (!is_moment || storage.moments == DType::kF32) {
      states.push_back(stored);
      continue;
    }
    stored.dtype = storage.moments;
    if (storage.moments != DType::kE4M3) {
      states.push_back(stored);
      continue;
    }
    stored.layout = StateLayout::kTensor;
    states.push_back(stored);
    StateSpec scale;
    scale.shape = {(rows.elements() + kMomentBlock - 1) / kMomentBlock};
    scale.layout = StateLayout::kTensor;
    scale.block = kMomentBlock;
    scale.name = scale_name(state.name);
    states.push_back(scale);
  }
  if (storage.weights == DType::kBF16 && storage.rounding == Rounding::kKahan) {
    StateSpec compensation;
    compensation.shape = rows;
    compensation.name = "compensation";
    compensation.dtype = DType::kBF16;
    states.push_back(compensation);
  }
  return states;
}

const OpDef& stored_op(const UpdateRule& rule, const Shape& rows) {
  return rule.storage.is_plain() ? rule.optimizer.definition().op(rows) : StoredUpdate::def;
}

Definition::Unit stored_unit(const UpdateRule& rule) {
  const bool in_blocks = rule.storage.moments == DType::kE4M3;
  return in_blocks ? Definition::Unit::kTensor : rule.optimizer.definition().unit;
}

int64_t stored_alignment(const UpdateRule& rule, const Shape& rows) {
  const int64_t own = rule.optimizer.definition().alignment(rows);
  if (rule.storage.is_plain() || !has_blocks(stored_states(rule, rows))) return own;
  return std::lcm(own, kMomentBlock / std::gcd(rows.elements() / rows[0], kMomentBlock));
}

const OpDef StoredUpdate::def = define<StoredUpdate>({
    .name = "stored_update",
    .family = "update",
    .infer = infer_stored,
    .cost = cost_stored,
    .placements = placements_stored,
    .in_place = {{"parameter", "parameter"}, {"states", "states"}},
    .localize = localize_stored,
});

}  // namespace strata::optim
