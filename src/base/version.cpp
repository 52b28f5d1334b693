#include "base/version.h"

#include "strata/config.h"

namespace strata {

const char* version() {
  return STRATA_VERSION;
}

std::string_view program_version() {
  return STRATA_VERSION;
}

}  // namespace strata
