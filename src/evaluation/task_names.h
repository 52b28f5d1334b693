// The supported evaluation tasks.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace strata::evaluation {

// "arc_challenge", "hellaswag", …, in alphabetical order.
std::span<const std::string> task_names();
// The error for an unknown task name, with the nearest known one; empty for a known name.
std::string task_name_error(std::string_view name);

}  // namespace strata::evaluation
