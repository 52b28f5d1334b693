// Lists that a recipe holds directly or names as files with an entry per line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/pipeline/stage_kinds.h"

namespace strata::data {

// The entries of the list parameter `name`, and those of the file that `file_name` names, if any: stripped
// lines, without empty ones and those that start with '#'. ConfigError for a file that cannot be read.
std::vector<std::string> list_entries(const StageParameters& parameters, const std::string& name,
                                      const std::string& file_name);

// A path as the recipe means it.
Path recipe_path(const StageParameters& parameters, const std::string& path);

// "LABEL:NUMBER" entries. ConfigError naming kind and parameter.
std::vector<std::pair<std::string, double>> labelled_numbers(std::string_view kind, const std::string& name,
                                                             const std::vector<std::string>& entries);

}  // namespace strata::data
