#include "optim/adopt/adopt.h"
#include "optim/update_rules.h"

namespace strata::optim {

const OpDef AdoptUpdate::def = define<AdoptUpdate>({
    .name = "adopt",
    .family = "update",
    .infer = infer_update,
    .cost = [](const auto& node) { return update_cost(node); },
    .placements = placements_by_element,
    .in_place = {{"parameter", "parameter"}, {"m", "m"}, {"v", "v"}},
    .localize = localize_update,
});

const Definition Adopt::definition{
    .name = "adopt",
    .help = "AdamW that divides a gradient by the second moment of those before (Taniguchi et al. 2024).",
    .keys = {{"beta1", &Adopt::beta1, "Decay of the momentum.", {.least = 0, .below = 1}},
             {"beta2", &Adopt::beta2, "Decay of the second moment.", {.least = 0, .below = 1}},
             {"eps", &Adopt::eps, "Least root of the second moment.", {.least = kLeastConstant, .most = 1}}},
    .low_weights = true,
    .low_moments = true,
    .op = op_of<AdoptUpdate>,
    .states = states_of<AdoptUpdate>,
};

}  // namespace strata::optim
