// What verbs write: standard output, checked (a full disk behind a redirection is an error, a closed pipe
// ends the program quietly, as it ends others), and the files that they are told to write.
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

// ConfigError where `path` is there and `force` does not say to replace it; `where` names verb or option.
// Devices, pipes and empty folders are nothing that could be lost.
void refuse_existing(const std::string& where, const Path& path, bool force);

// The same of a file to write, whose folder must be there: told before the work that the file is to hold.
void check_output_file(const std::string& where, const Path& path, bool force);

// The help of --force, the same for all verbs that have it.
inline constexpr const char* kForceHelp = "Replace what is there";

}  // namespace strata::cli
