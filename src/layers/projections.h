// What layers are made of: placements, parameters and projections. Internal to this module.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "layers/layers.h"

namespace strata::layers {

inline const graph::Placement kWhole = graph::Placement::replicated();
inline const graph::Placement kRows = graph::Placement::sharded(0);
inline const graph::Placement kHeads = graph::Placement::sharded(1);  // columns, which are of whole heads

// This placement on each of these axes that has several ranks; replicated on all others.
graph::Placements placed(const graph::Mesh& mesh, std::initializer_list<Axis> axes,
                         graph::Placement placement);
graph::Placements on_tensor_axis(const Context& context, graph::Placement placement);

// The terms that the shards of a row-parallel weight give, added up.
ValueId reduced(Context& context, ValueId terms);

ValueId add_parameter(Context& context, const std::string& name, graph::ParameterRole role, Shape shape,
                      graph::Init::Kind start, const graph::Placements& placements = {},
                      std::vector<int64_t> segments = {});
// It starts as 1 after the offset that the norm adds.
ValueId norm_weight(Context& context, const std::string& name, graph::ParameterRole role, int64_t width,
                    double offset, const graph::Placements& placements = {});

struct Projection {
  ValueId weight, bias;  // the bias may be kNone
};

// The parameters of a projection, sharded as its `parallel` demands.
Projection add_projection(Context& context, const LinearSpec& spec);

}  // namespace strata::layers
