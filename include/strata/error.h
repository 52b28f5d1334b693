// Errors of the library, and its log lines.
//
// Threads: values; any thread. Ownership: none. Errors: a function that fails throws Error; std::bad_alloc and exceptions
// of callbacks pass through. Stability: the values of ErrorKind, their exit codes and the form of a message, "[KEY or
// FILE] found, expected, what to do", do not change within 0.x; the words after the bracket may change in any release.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

// What a program may link. Everything else in the library is hidden.
#define STRATA_API __attribute__((visibility("default")))

namespace strata {

enum class ErrorKind {
  kInternal,  // a bug in Strata
  kConfig,    // a configuration or an argument, including a missing path or a locked folder
  kData,      // the content of data, of a tokenizer or of a model
  kWorld,     // files, network, device, memory, a lost rank
  kDiverged,  // training diverged
};

class STRATA_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message);
  ~Error() override;
  Error(const Error&);
  Error& operator=(const Error&);
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// The code with which the program `strata` ends on an error of this kind: 1 to 5, in the order above.
STRATA_API int exit_code(ErrorKind kind);

enum class LogLevel { kInfo, kWarning, kError };

// Takes messages of a call, on the thread that calls it. Without one they are dropped: the library prints nothing.
using Log = std::function<void(LogLevel level, std::string_view line)>;

}  // namespace strata
