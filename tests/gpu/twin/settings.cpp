#include "twin/settings.h"

#include <fmt/core.h>

#include <charconv>
#include <regex>
#include <stdexcept>

namespace strata::twin {
namespace {

[[noreturn]] void refuse(std::string_view setting, const char* expected) {
  throw std::invalid_argument(fmt::format("STRATA_TWIN: found \"{}\", expected {}", setting, expected));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

uint64_t number_of(std::string_view text, std::string_view setting) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) refuse(setting, "a number");
  return number;
}

uint64_t bytes_of(std::string_view text, std::string_view setting) {
  unsigned shift = 0;
  for (const auto& [unit, bits] : {std::pair{"KiB", 10u}, {"MiB", 20u}, {"GiB", 30u}}) {
    if (!text.ends_with(unit)) continue;
    text.remove_suffix(3);
    shift = bits;
  }
  return number_of(text, setting) << shift;
}

CallFault call_fault(CallFault::Kind kind, const std::string& value, std::string_view setting) {
  const std::vector<std::string> parts = split(value, ':');
  const bool drop = kind == CallFault::Kind::kDrop;
  if (parts.size() != (drop ? 2 : 3)) refuse(setting, drop ? "CALL:K" : "CALL:K:NUMBER");
  return {.kind = kind,
          .call = parts[0],
          .at = number_of(parts[1], setting),
          .number = drop ? 0 : static_cast<Result>(number_of(parts[2], setting)),
          .text = std::string(setting)};
}

}  // namespace

Settings Settings::parse(std::string_view text) {
  Settings all;
  for (const std::string& setting : split(text, ';')) {
    if (setting.empty()) continue;
    const size_t equals = setting.find('=');
    if (equals == std::string::npos) refuse(setting, "KEY=VALUE");
    const std::string key = setting.substr(0, equals), value = setting.substr(equals + 1);
    if (key == "seed") {
      all.seed = number_of(value, setting);
    } else if (key == "cards") {
      all.cards = static_cast<int>(number_of(value, setting));
      if (all.cards > 8) refuse(setting, "0 to 8 cards");
    } else if (key == "name") {
      all.name = value;
    } else if (key == "arch") {
      all.architecture = static_cast<int>(number_of(value, setting));
    } else if (key == "multiprocessors") {
      all.multiprocessors = static_cast<int>(number_of(value, setting));
    } else if (key == "memory") {
      all.memory = bytes_of(value, setting);
    } else if (key == "held") {
      all.held = bytes_of(value, setting);
    } else if (key == "driver") {
      all.driver_version = static_cast<int>(number_of(value, setting));
    } else if (key == "unwritten") {
      if (value != "on" && value != "off") refuse(setting, "on or off");
      all.unwritten = value == "on";
    } else if (key == "traffic") {
      all.traffic = value;
    } else if (key == "fail") {
      all.faults.push_back(call_fault(CallFault::Kind::kFail, value, setting));
    } else if (key == "fault") {
      all.faults.push_back(call_fault(CallFault::Kind::kFault, value, setting));
    } else if (key == "drop") {
      all.faults.push_back(call_fault(CallFault::Kind::kDrop, value, setting));
    } else if (key == "edit") {
      const std::vector<std::string> parts = split(value, ':');
      if (parts.size() != 4) refuse(setting, "KERNEL:REGEX:K:TEXT");
      all.edits.push_back({parts[0], parts[1], number_of(parts[2], setting), parts[3], setting});
    } else {
      refuse(setting, "a key of tests/gpu/twin/settings.h");
    }
  }
  return all;
}

unsigned Settings::shared_limit() const {
  switch (architecture) {
    case 70:
      return 96 * 1024;
    case 75:
      return 64 * 1024;
    case 80:
    case 87:
      return 163 * 1024;
    case 86:
    case 89:
    case 120:
      return 99 * 1024;
    default:
      return 227 * 1024;
  }
}

int Settings::ptx_version() const {
  const int major = driver_version / 1000, minor = driver_version % 1000 / 10;
  if (major < 12) return (major - 4) * 10 + minor;
  if (major == 12) return 80 + minor - (minor > 5 ? 1 : 0);
  return 90 + (major - 13) * 10 + minor;
}

bool apply_edit(const Edit& edit, std::string& ptx) {
  const std::regex pattern(edit.pattern);
  bool found_kernel = false, inside = false;
  uint64_t matches = 0;
  for (size_t begin = 0; begin < ptx.size();) {
    const size_t end = std::min(ptx.find('\n', begin), ptx.size());
    const std::string line = ptx.substr(begin, end - begin);
    if (const size_t entry = line.find(".entry "); entry != std::string::npos) {
      inside = line.find(" " + edit.kernel + "(", entry) != std::string::npos;
      found_kernel = found_kernel || inside;
    } else if (inside && line.find(".loc") == std::string::npos && std::regex_search(line, pattern) &&
               ++matches == edit.at) {
      const std::string fresh =
          edit.replacement.empty()
              ? std::string()
              : std::regex_replace(line, pattern, edit.replacement, std::regex_constants::format_first_only);
      ptx.replace(begin, end - begin, fresh);
      return true;
    }
    if (line.starts_with('}')) inside = false;
    begin = end + 1;
  }
  if (found_kernel)
    throw std::invalid_argument(
        fmt::format("the twin found {} lines of {} with a match of \"{}\", expected at least {}", matches,
                    edit.kernel, edit.pattern, edit.at));
  return false;
}

}  // namespace strata::twin
