#include "optim/lion/lion.h"
#include "optim/update_rules.h"

namespace strata::optim {

const OpDef LionUpdate::def = define<LionUpdate>({
    .name = "lion",
    .family = "update",
    .infer = infer_update,
    .cost = [](const auto& node) { return update_cost(node); },
    .placements = placements_by_element,
    .in_place = {{"parameter", "parameter"}, {"momentum", "momentum"}},
    .localize = localize_update,
});

const Definition Lion::definition{
    .name = "lion",
    .help = "The sign of a mixed momentum (Chen et al. 2023).",
    .keys = {{"beta1", &Lion::beta1, "Share of the momentum in the update.", {.least = 0, .below = 1}},
             {"beta2", &Lion::beta2, "Decay of the momentum.", {.least = 0, .below = 1}}},
    .low_weights = true,
    .low_moments = true,
    .op = op_of<LionUpdate>,
    .states = states_of<LionUpdate>,
};

}  // namespace strata::optim
