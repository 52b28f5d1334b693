// A model's configuration as planning formulas take it.
#pragma once

#include "models/model.h"
#include "plan/model_shape.h"

namespace strata::library {

// Encoders and decoders count as one stack of layers; norms with biases and learned positions are left out.
planning::ModelShape shape_of(const models::ModelConfig& model);

}  // namespace strata::library
