#include "evaluation/task_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/suggest.h"

namespace strata::evaluation {

std::span<const std::string> task_names() {
  static const std::vector<std::string> names{"arc_challenge",  "arc_easy",         "hellaswag",
                                              "lambada_openai", "lambada_standard", "piqa"};
  return names;
}

std::string task_name_error(std::string_view name) {
  const auto names = task_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return {};
  const auto nearest = nearest_name(name, names);
  return fmt::format("found the task \"{}\", expected {}{}", name, fmt::join(names, ", "),
                     nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : "");
}

}  // namespace strata::evaluation
