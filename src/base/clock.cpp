#include "base/clock.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>

namespace strata {

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double process_seconds() {
  timespec now{};
  if (clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  // Field 22 counts clock ticks since the machine's start; the second may hold spaces, in brackets.
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 2)));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  if (!fields) return 0;
  const double started = std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - started;
}

std::string utc_timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string human_duration(double seconds) {
  if (!(seconds >= 0) || std::isinf(seconds)) return "?";
  if (seconds < 60) return fmt::format("{:.0f} s", seconds);
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (seconds < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  if (seconds < 4 * 86400.0) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{:.1f} d", seconds / 86400);
}

namespace {
std::string scaled(double value, const std::array<const char*, 6>& suffixes, const char* unit) {
  size_t step = 0;
  while (std::abs(value) >= 999.5 && step + 1 < suffixes.size()) {
    value /= 1000;
    ++step;
  }
  const int decimals = step == 0 ? 0 : std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}{}", value, decimals, suffixes[step], unit);
}
}  // namespace

std::string human_bytes(double bytes) {
  return scaled(bytes, {" ", " k", " M", " G", " T", " P"}, "B");
}
std::string human_count(double count) {
  return scaled(count, {"", "k", "M", "B", "T", "Q"}, "");
}

}  // namespace strata
