#include "program/expert_places.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "graph/reshard.h"
#include "ops/pair_places/pair_places.h"

namespace strata::program {

using graph::kNone;
using graph::ValueId;

void ExpertPlaces::note(const graph::Node& node) {
  if (node.op != &ops::PlanDispatch::def) return;
  const auto out = graph::outputs_of<ops::PlanDispatch>(node);
  sent_.insert(
      {out.offsets,
       {out.way, graph::inputs_of<ops::PlanDispatch>(node).weights, node.attrs.as<ops::DispatchAttrs>()}});
}

ValueId ExpertPlaces::of_tokens(const ExpertRows& rows, const Marks& marks) {
  if (rows.offsets == kNone) return codes_.places_of_rows(rows.ids, marks);
  const Sent& sent = sent_.at(rows.offsets);
  const ValueId places = codes_.places_of_rows(sent.weights, marks);
  return graph::add<ops::DispatchRows>(graph_, {.x = places, .way = sent.way}, sent.attrs).rows;
}

ValueId ExpertPlaces::of(const ExpertRows& rows, const Marks& marks) {
  const auto [slot, is_new] = made_.try_emplace({rows.ids, rows.by_pair, marks.phase, marks.chunk}, kNone);
  if (!is_new) return slot->second;
  mark(graph_, marks);
  if (!rows.by_pair) return slot->second = of_tokens(rows, marks);
  ExpertRows of_tokens = rows;
  of_tokens.by_pair = false;
  ops::PairPlacesAttrs attrs;
  static_cast<ops::ExpertsAttrs&>(attrs) = rows.attrs;
  attrs.all_experts = rows.attrs.experts;
  if (sequence_length_ * attrs.all_experts > std::numeric_limits<int32_t>::max()) {
    throw ConfigError(
        "[{}] random bits of gradients number {} tokens of a sequence times {} experts, expected fewer than 2^31; "
        "take shorter sequences or gradient_rounding = \"nearest\"",
        words_.recipe, sequence_length_, attrs.all_experts);
  }
  for (const graph::Axis axis : graph::kAllAxes) {
    const auto& axes = attrs.distributed_axes;
    if (std::find(axes.begin(), axes.end(), axis) != axes.end())
      attrs.cuts.push_back({axis, graph_.mesh().size(axis)});
  }
  const ValueId places = of(of_tokens, marks);
  const ValueId rank = attrs.cuts.empty() ? kNone : graph::rank_block(graph_);
  return slot->second =
             graph::add<ops::PairPlaces>(
                 graph_, {.places = places, .ids = rows.ids, .offsets = rows.offsets, .rank = rank}, attrs)
                 .of_pairs;
}

}  // namespace strata::program
