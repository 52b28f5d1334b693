#include "ops/rules.h"
#include "ops/pair_places/pair_places.h"

namespace strata::ops {

void PairPlacesAttrs::describe(graph::AttributeText& to) const {
  ExpertsAttrs::describe(to);
  to("all_experts", all_experts);
  for (const Cut& one : cuts) {
    to("axis", name_of(one.axis));
    to("ranks", one.ranks);
  }
}

int64_t PairPlacesAttrs::first_expert(const graph::Coordinates& rank) const {
  int64_t place = 0;
  for (const Cut& one : cuts) place = place * one.ranks + rank[one.axis];
  return place * experts;
}

const OpDef PairPlaces::def = define<PairPlaces>({
    .name = "pair_places",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<PairPlaces> {
      require_slots(node);
      require(node, node.in.places->shape == Shape{tokens_of(node), 2}, "places must be i32[N, 2]");
      require(node, node.attrs.cuts.empty() || node.in.rank, "experts of ranks need the per-rank constants");
      return {.of_pairs = {DType::kI32, {slots_of(node), 2}}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<PairPlaces> {
      return {{{.places = kS0, .ids = kS0, .offsets = kS0, .rank = kR}, {.of_pairs = kS0}}};
    },
    .localize =
        [](const View<PairPlaces>& node) {
          PairPlacesAttrs own = node.attrs;
          static_cast<ExpertsAttrs&>(own) = experts_of_rank(node.attrs, node.graph.mesh());
          return own;
        },
});

}  // namespace strata::ops
