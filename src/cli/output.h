// Output of verbs: checked standard output (a full disk is an error, a closed pipe ends the program quietly,
// like other programs), and checks of output files.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

#include "base/file.h"

namespace strata::cli {

void print_out(const std::string& text);
template <typename... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) requires(sizeof...(Args) > 0) {
  print_out(fmt::format(format, std::forward<Args>(args)...));
}
void flush_out();

// Throws ConfigError if `path` exists and `force` is false; `where` names the verb or option. Devices, pipes
// and empty folders may be overwritten.
void refuse_existing(const std::string& where, const Path& path, bool force);

// Like refuse_existing(), for an output file, whose folder must exist: checked before the work whose result
// it will hold.
void check_output_file(const std::string& where, const Path& path, bool force);

// The help of --force, the same for all verbs that have it.
inline constexpr const char* kForceHelp = "Replace an existing file or folder";

}  // namespace strata::cli
