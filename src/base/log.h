// Log lines on standard error. Standard output belongs to results.
#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <string_view>
#include <utility>

namespace strata {

enum class LogLevel { kInfo, kWarning, kError };

void set_log_level(LogLevel level);

// The calling thread's lines go into a file too, or into it alone, while this lives: each of several ranks
// has a log of its own, and one of them the terminal. WorldError where the file cannot be written.
class LogFile {
 public:
  LogFile(const std::filesystem::path& path, bool terminal);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
};

void log_line(LogLevel level, std::string_view message);

// The error with which the process ends: on the terminal as well where this thread's lines go into a file
// alone.
void log_end(std::string_view message);

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace strata
