#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace strata::cli {

void print_out(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    throw WorldError("[standard output] writing failed: {}", std::strerror(errno));
  }
}

void flush_out() {
  if (std::fflush(stdout) != 0)
    throw WorldError("[standard output] writing failed: {}", std::strerror(errno));
}

}  // namespace strata::cli
