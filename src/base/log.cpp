#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "base/error.h"

namespace strata {
namespace {

// The destinations of a thread's lines.
struct ThreadLog {
  std::shared_ptr<spdlog::logger> file;
  bool terminal = true;
  const std::function<void(LogLevel, std::string_view)>* sink = nullptr;  // in place of the terminal
};
thread_local ThreadLog own;  // NOLINT: a thread's place to write to

// One logger a process: the terminal is one, and spdlog's sink locks around each line.
spdlog::logger& terminal_logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made =
        std::make_shared<spdlog::logger>("strata", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%^%v%$");
    made->set_level(spdlog::level::info);
    return made;
  }();
  return *instance;
}

void write_line(spdlog::logger& to, LogLevel level, std::string_view message) {
  switch (level) {
    case LogLevel::kInfo:
      to.info("{}", message);
      break;
    case LogLevel::kWarning:
      to.warn("warning: {}", message);
      break;
    case LogLevel::kError:
      to.error("error: {}", message);
      break;
  }
}

void write_to_sink(LogLevel level, std::string_view message) {
  if (own.sink == nullptr)
    log_to_terminal(level, message);
  else if (*own.sink)
    (*own.sink)(level, message);
}

}  // namespace

LogFile::LogFile(const std::filesystem::path& path, bool terminal) {
  try {
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string());
    file->set_pattern("%Y-%m-%dT%H:%M:%S.%e %v");
    auto made = std::make_shared<spdlog::logger>("strata", std::move(file));
    made->flush_on(spdlog::level::info);
    own.file = std::move(made);
    own.terminal = terminal;
  } catch (const spdlog::spdlog_ex& error) {
    throw WorldError("[{}] cannot be written: {}", path.string(), error.what());
  }
}

LogFile::~LogFile() {
  own.file = nullptr;
  own.terminal = true;
}

LogSink::LogSink(std::function<void(LogLevel, std::string_view)> sink)
    : sink_(std::move(sink)), previous_(own.sink) {
  own.sink = &sink_;
}

LogSink::~LogSink() {
  own.sink = previous_;
}

void log_to_terminal(LogLevel level, std::string_view message) {
  write_line(terminal_logger(), level, message);
}

void set_log_level(LogLevel level) {
  static constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::info, spdlog::level::warn,
                                                          spdlog::level::err};
  terminal_logger().set_level(kLevels[static_cast<int>(level)]);
}

void log_end(std::string_view message) {
  log_line(LogLevel::kError, message);
  if (!own.terminal) write_to_sink(LogLevel::kError, message);
}

void log_line(LogLevel level, std::string_view message) {
  if (own.file != nullptr) write_line(*own.file, level, message);
  if (own.terminal) write_to_sink(level, message);
}

}  // namespace strata
