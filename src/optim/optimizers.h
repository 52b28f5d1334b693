// Every optimizer: the one list of them. Configurations, graphs, reference kernels and cases follow it; a
// device has a row for each of their ops.
#pragma once

#include <tuple>

#include "optim/adafactor/adafactor.h"
#include "optim/adamw/adamw.h"
#include "optim/adamw8bit/adamw8bit.h"
#include "optim/adopt/adopt.h"
#include "optim/definition.h"
#include "optim/lion/lion.h"
#include "optim/muon/muon.h"

namespace strata::optim {

// In the order in which pages list them. The first is the default, and has the tensors that others leave.
using Optimizers = std::tuple<AdamW, Muon, Lion, Adafactor, AdamW8Bit, Adopt>;

}  // namespace strata::optim
