// Names of settings, for error messages about schedules and layouts.
#pragma once

#include <string_view>

namespace strata::parallel {

// Plain words by default; a caller that reads a configuration passes its keys.
struct Words {
  std::string_view schedule = "schedule";
  std::string_view virtual_stages = "virtual stages";
  std::string_view ranks = "ranks";
  std::string_view stage_layers = "stage layers";
  std::string_view batch = "the batch size";  // determines the number of micro-batches
};

}  // namespace strata::parallel
