#include "base/version.h"

namespace strata {

std::string_view program_version() {
  return STRATA_VERSION;
}

}  // namespace strata
