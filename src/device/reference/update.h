// The reference kernel whose operands are the optimizers' own structs.
#pragma once

#include "kernels/reference/call.h"

namespace strata::reference {

// (hyper, token count, partials…) → scalars, norm
void update_scalars(const Call&);

}  // namespace strata::reference
