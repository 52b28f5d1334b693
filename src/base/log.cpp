#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace strata {
namespace {

// One logger a process: the terminal is one, and spdlog's sink locks around each line.
spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made =
        std::make_shared<spdlog::logger>("strata", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%^%v%$");
    made->set_level(spdlog::level::info);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) {
  static constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::info, spdlog::level::warn,
                                                          spdlog::level::err};
  logger().set_level(kLevels[static_cast<int>(level)]);
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
