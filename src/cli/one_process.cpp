#include "cli/one_process.h"

#include <cstdlib>

#include "base/error.h"
#include "comm/launcher.h"

namespace strata::cli {

void require_one_process(const std::string& verb, const std::string& instead) {
  const auto launched =
      comm::launched_rank([](const char* name) -> const char* { return std::getenv(name); });
  if (!launched || launched->size == 1) return;
  throw ConfigError("[{}] {} started {} processes, expected one; start it without a launcher{}", verb,
                    launched->launcher, launched->size, instead);
}

}  // namespace strata::cli
