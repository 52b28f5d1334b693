// The evaluation tasks that the program knows.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace strata::evaluation {

// "arc_challenge", "hellaswag", …, in alphabetical order.
std::span<const std::string> task_names();
// What is wrong with a task's name, with the nearest known one; empty: nothing.
std::string task_name_error(std::string_view name);

}  // namespace strata::evaluation
