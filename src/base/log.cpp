#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "base/error.h"

namespace strata {
namespace {

// The logger of a thread that has a log file.
thread_local std::shared_ptr<spdlog::logger> own_logger;  // NOLINT: a thread's place to write to

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

spdlog::logger& logger() {
  return own_logger != nullptr ? *own_logger : terminal_logger();
}

}  // namespace

LogFile::LogFile(const std::filesystem::path& path, bool terminal) {
  try {
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string());
    file->set_pattern("%Y-%m-%dT%H:%M:%S.%e %v");
    auto made = std::make_shared<spdlog::logger>("strata", std::move(file));
    if (terminal) made->sinks().push_back(terminal_logger().sinks().front());
    made->flush_on(spdlog::level::info);
    own_logger = std::move(made);
  } catch (const spdlog::spdlog_ex& error) {
    throw WorldError("[{}] cannot be written: {}", path.string(), error.what());
  }
}

LogFile::~LogFile() {
  own_logger = nullptr;
}

void set_log_level(LogLevel level) {
  static constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::info, spdlog::level::warn,
                                                          spdlog::level::err};
  terminal_logger().set_level(kLevels[static_cast<int>(level)]);
}

void log_end(std::string_view message) {
  log_line(LogLevel::kError, message);
  const bool is_in_file_alone = own_logger != nullptr && own_logger->sinks().size() == 1;
  if (is_in_file_alone) terminal_logger().error("error: {}", message);
}

void log_line(LogLevel level, std::string_view message) {
  switch (level) {
    case LogLevel::kInfo:
      logger().info("{}", message);
      break;
    case LogLevel::kWarning:
      logger().warn("warning: {}", message);
      break;
    case LogLevel::kError:
      logger().error("error: {}", message);
      break;
  }
}

}  // namespace strata
