// The error taxonomy. Library code throws; only main maps an error to an exit code. A message names the key
// or file, then the problem, the expected value and what to do.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "strata/error.h"

namespace strata {

#define STRATA_DEFINE_ERROR(Name, Kind)                                                    \
  class Name : public Error {                                                              \
   public:                                                                                 \
    explicit Name(const std::string& message) : Error(ErrorKind::Kind, message) {}         \
    template <typename... Args>                                                            \
    Name(fmt::format_string<Args...> format, Args&&... args) requires(sizeof...(Args) > 0) \
        : Error(ErrorKind::Kind, fmt::format(format, std::forward<Args>(args)...)) {}      \
  }

STRATA_DEFINE_ERROR(InternalError, kInternal);  // a bug of ours: exit code 1
STRATA_DEFINE_ERROR(ConfigError, kConfig);      // the user's configuration or arguments, a missing path: 2
STRATA_DEFINE_ERROR(DataError, kData);          // the content of the user's data, tokenizer or model: 3
STRATA_DEFINE_ERROR(WorldError, kWorld);        // files, network, device, memory: 4
STRATA_DEFINE_ERROR(DivergedError, kDiverged);  // training diverged and recovery was exhausted: 5
#undef STRATA_DEFINE_ERROR

// Invariants of ours. A failed check is a bug of the program, never a user's fault.
#define STRATA_CHECK(condition, ...)                                                              \
  do {                                                                                            \
    if (!(condition)) [[unlikely]]                                                                \
      ::strata::detail::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);
}

}  // namespace strata
