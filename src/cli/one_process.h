// For verbs that use one process.
#pragma once

#include <string>

namespace strata::cli {

// Throws ConfigError if a launcher such as mpirun started several processes of a verb that uses one.
// `instead`: additional advice.
void require_one_process(const std::string& verb, const std::string& instead = {});

}  // namespace strata::cli
