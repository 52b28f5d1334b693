// Log lines on standard error. Standard output belongs to results.
#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>

#include "strata/error.h"

namespace strata {

void set_log_level(LogLevel level);

// While this lives, the calling thread's lines also go into a file, or only into it: each of several ranks
// has its own log, and one of them the terminal. WorldError if the file cannot be written.
class LogFile {
 public:
  LogFile(const std::filesystem::path& path, bool terminal);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
};

// Writes a line to the terminal, whatever LogSinks exist.
void log_to_terminal(LogLevel level, std::string_view message);

// While this exists, the calling thread's lines go to `sink` instead of the terminal, or nowhere if it is empty. The
// innermost one counts.
class LogSink {
 public:
  explicit LogSink(std::function<void(LogLevel, std::string_view)> sink);
  ~LogSink();
  LogSink(const LogSink&) = delete;
  LogSink& operator=(const LogSink&) = delete;

 private:
  std::function<void(LogLevel, std::string_view)> sink_;
  const std::function<void(LogLevel, std::string_view)>* previous_;
};

void log_line(LogLevel level, std::string_view message);

// Logs the error with which the process ends: on the terminal too if this thread's lines go only into a file.
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
