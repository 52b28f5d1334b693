#include "optim/adamw/adamw.h"
#include "optim/update_rules.h"

namespace strata::optim {

const OpDef AdamWUpdate::def = define<AdamWUpdate>({
    .name = "adamw",
    .family = "update",
    .infer = infer_update,
    .cost = [](const auto& node) { return update_cost(node); },
    .placements = placements_by_element,
    .in_place = {{"parameter", "parameter"}, {"m", "m"}, {"v", "v"}},
    .localize = localize_update,
});

// Its keys serve adamw8bit too, and the tensors that muon leaves.
const Definition AdamW::definition{
    .name = "adamw",
    .help = {},
    .keys =
        {{"beta1", &AdamW::beta1, "adamw, adamw8bit: decay of the first moment.", {.least = 0, .below = 1}},
         {"beta2", &AdamW::beta2, "adamw, adamw8bit: decay of the second moment.", {.least = 0, .below = 1}},
         {"eps",
          &AdamW::eps,
          "adamw, adamw8bit: added to the root of the second moment.",
          {.least = kLeastConstant, .most = 1}}},
    .low_weights = true,
    .low_moments = true,
    .op = op_of<AdamWUpdate>,
    .states = states_of<AdamWUpdate>,
};

}  // namespace strata::optim
