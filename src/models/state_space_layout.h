// What families with Mamba-2 share: keys of config.json and rows of files.
#pragma once

#include <string>
#include <vector>

#include "models/config_json.h"
#include "models/model.h"

namespace strata::models {

// NAME.in_proj [z | x | B | C | dt], conv1d, A_log, D, dt_bias, norm and out_proj of a layer's mixer.
void add_state_space_rows(const layers::StateSpaceDims& dims, int64_t hidden_size, const std::string& file,
                          const std::string& ours, std::vector<TensorRow>& list);

// "time_step_limit", or as given by `fallback`; 0 for no upper bound.
void read_step_limits(const ConfigJson& json, layers::StateSpaceDims& dims);
nlohmann::ordered_json step_limits_json(const layers::StateSpaceDims& dims);

// All heads together must have `width` channels, as transformers' classes require. Throws DataError.
void require_heads_of_width(const ConfigJson& json, const char* heads_key, const layers::StateSpaceDims& dims,
                            int64_t width);

}  // namespace strata::models
