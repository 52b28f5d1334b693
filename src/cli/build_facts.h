// Facts about this build of the program, for `strata doctor` and `strata --version --json`.
#pragma once

#include <string>

#include "base/json.h"

namespace strata::cli {

// Libraries and their versions.
nlohmann::ordered_json library_versions();

// Version, compiler, instruction sets, optional parts and libraries, as one JSON object.
std::string build_facts_json();

}  // namespace strata::cli
