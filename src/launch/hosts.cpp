#include "launch/hosts.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "launch/process.h"

namespace strata::launch {
namespace {

constexpr int64_t kMostSlots = 65536;

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

std::optional<int64_t> count_in(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMostSlots)
    return std::nullopt;
  return value;
}

// Calls visit(line, its number from 1) for every line.
template <typename Visit>
void each_line(std::string_view text, const Visit& visit) {
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    visit(text.substr(begin, end - begin), ++number);
    begin = end + 1;
  }
}

// A name that starts with "-" would be an option of the launcher.
bool is_name(std::string_view text) {
  return !text.empty() && text.front() != '-' && text.find_first_of(" \t,:=") == std::string_view::npos;
}

std::optional<HostSlots> host_in(std::string_view line) {
  HostSlots host;
  std::string_view name = line, count;
  if (const size_t space = line.find_first_of(" \t"); space != std::string_view::npos) {
    name = line.substr(0, space);
    count = trimmed(line.substr(space));
    constexpr std::string_view kSlots = "slots=";
    if (!count.starts_with(kSlots)) return std::nullopt;
    count = count.substr(kSlots.size());
    if (const size_t more = count.find_first_of(" \t"); more != std::string_view::npos) {
      // Open MPI's second limit has no effect here.
      if (!trimmed(count.substr(more)).starts_with("max_slots=")) return std::nullopt;
      count = count.substr(0, more);
    }
  } else if (const size_t colon = line.find(':'); colon != std::string_view::npos) {
    name = line.substr(0, colon);
    count = line.substr(colon + 1);
  }
  if (!is_name(name)) return std::nullopt;
  host.name = name;
  if (name.size() < line.size()) {
    const auto slots = count_in(count);
    if (!slots) return std::nullopt;
    host.slots = *slots;
  }
  return host;
}

}  // namespace

std::vector<HostSlots> parse_hosts(std::string_view text, const std::string& file) {
  std::vector<HostSlots> hosts;
  each_line(text, [&](std::string_view whole, int number) {
    const std::string_view line = trimmed(whole.substr(0, whole.find('#')));
    if (line.empty()) return;
    const auto host = host_in(line);
    if (!host) {
      throw ConfigError(
          "[{}:{}] found \"{}\", expected a host and its number of ranks, from 1 to {}: \"NAME slots=4\", \"NAME:4\", "
          "or only \"NAME\" for one",
          file, number, line, kMostSlots);
    }
    if (std::any_of(hosts.begin(), hosts.end(), [&](const HostSlots& one) { return one.name == host->name; }))
      throw ConfigError("[{}:{}] found {} again, expected each host once", file, number, host->name);
    hosts.push_back(*host);
  });
  if (hosts.empty()) throw ConfigError("[{}] found no hosts, expected one a line", file);
  return hosts;
}

std::vector<HostSlots> slurm_hosts(std::string_view names, std::string_view tasks_per_node) {
  std::vector<int64_t> slots;
  for (size_t begin = 0; begin < tasks_per_node.size();) {
    const size_t end = std::min(tasks_per_node.find(',', begin), tasks_per_node.size());
    const std::string_view part = tasks_per_node.substr(begin, end - begin);
    const size_t times = part.find("(x");
    const auto count = count_in(part.substr(0, times));
    const auto repeat = times == std::string_view::npos
                            ? std::optional<int64_t>(1)
                            : count_in(part.substr(times + 2, part.find(')', times) - times - 2));
    if (!count || !repeat) {
      throw ConfigError("[SLURM_TASKS_PER_NODE] found \"{}\", expected counts such as 4(x2),3",
                        tasks_per_node);
    }
    slots.insert(slots.end(), static_cast<size_t>(*repeat), *count);
    begin = end + 1;
  }
  std::vector<HostSlots> hosts;
  each_line(names, [&](std::string_view line, int) {
    const std::string_view name = trimmed(line);
    if (name.empty()) return;
    const size_t at = hosts.size();
    hosts.push_back({.name = std::string(name), .slots = at < slots.size() ? slots[at] : 1});
  });
  return hosts;
}

bool is_this_host(const std::string& name) {
  if (name == "localhost" || name == "127.0.0.1" || name == "::1") return true;
  std::array<char, 256> own{};
  return ::gethostname(own.data(), own.size() - 1) == 0 && name == own.data();
}

std::vector<bool> probe_hosts(const std::vector<HostSlots>& hosts, const std::vector<std::string>& agent,
                              double seconds) {
  std::vector<bool> answers(hosts.size(), true);
  std::vector<std::vector<std::string>> commands;
  std::vector<size_t> asked;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (is_this_host(hosts[i].name)) continue;
    commands.push_back(agent);
    commands.back().insert(commands.back().end(), {hosts[i].name, "true"});
    asked.push_back(i);
  }
  const std::vector<CapturedEnd> ends = run_captured(commands, seconds);
  for (size_t i = 0; i < asked.size(); ++i) answers[asked[i]] = ends[i].code == 0;
  return answers;
}

std::vector<HostSlots> place_ranks(const std::vector<HostSlots>& hosts, const std::vector<bool>& answers,
                                   int64_t ranks) {
  std::vector<HostSlots> out;
  int64_t left = ranks;
  for (size_t i = 0; i < hosts.size() && left > 0; ++i) {
    if (!answers[i]) continue;
    out.push_back(hosts[i]);
    out.back().slots = std::min(left, hosts[i].slots);
    left -= out.back().slots;
  }
  return out;
}

int64_t slots_of(const std::vector<HostSlots>& hosts) {
  int64_t slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  return slots;
}

}  // namespace strata::launch
