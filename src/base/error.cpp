#include "base/error.h"

#include <string_view>

namespace strata {

Error::Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
Error::Error(const Error&) = default;
Error& Error::operator=(const Error&) = default;
Error::~Error() = default;

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInternal:
      return 1;
    case ErrorKind::kConfig:
      return 2;
    case ErrorKind::kData:
      return 3;
    case ErrorKind::kWorld:
      return 4;
    case ErrorKind::kDiverged:
      return 5;
  }
  return 1;
}

namespace detail {
void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::string_view path(file);
  if (auto at = path.rfind("src/"); at != std::string_view::npos) path.remove_prefix(at);
  throw InternalError("[{}:{}] {} (expected {}); this is a bug in strata, please report it", path, line,
                      message, condition);
}
}  // namespace detail

}  // namespace strata
