// What messages call the settings that schedules and layouts are made from.
#pragma once

#include <string_view>

namespace strata::parallel {

// Plain words, unless whoever asks has keys for them.
struct Words {
  std::string_view schedule = "schedule";
  std::string_view virtual_stages = "virtual stages";
  std::string_view ranks = "ranks";
  std::string_view stage_layers = "stage layers";
  std::string_view batch = "the size of the batch";  // by which the number of micro-batches changes
};

}  // namespace strata::parallel
