#include "train/same_start.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/version.h"
#include "comm/exchange.h"
#include "program/explain.h"

namespace strata::training {
namespace {

constexpr size_t kHashDigits = 16;

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// One line, "NAME\tVALUE", for each input that must be the same on all ranks: "[memory.budget]\t\"1GB\"".
std::vector<std::string> lines_of(const config::RunConfig& config) {
  std::vector<std::string> lines;
  for (const config::Setting& setting : config::settings(config)) {
    if (setting.key == "run.started_in") continue;  // paths are already relative to the working folder
    lines.push_back(fmt::format("[{}]\t{}", setting.key, setting.value));
  }
  for (const config::Issue& issue : config.reading_issues)
    lines.push_back(fmt::format("[{}]\t{}", issue.key, one_line(issue.problem)));
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "\n"));
}

// By name, in the order of the lines.
using Named = std::vector<std::pair<std::string_view, std::string_view>>;
Named named(std::string_view text) {
  Named result;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const size_t tab = line.find('\t');
    result.emplace_back(line.substr(0, tab), line.substr(tab + 1));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return result;
}

std::string_view value_of(const Named& all, std::string_view name) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.first == name; });
  return at == all.end() ? "unset" : at->second;
}

// The names whose values differ, those of `a` first.
std::vector<std::string_view> differing(const Named& a, const Named& b) {
  std::vector<std::string_view> names;
  for (const Named* list : {&a, &b}) {
    for (const auto& [name, value] : *list) {
      const bool is_known = std::find(names.begin(), names.end(), name) != names.end();
      if (!is_known && value_of(a, name) != value_of(b, name)) names.push_back(name);
    }
  }
  return names;
}

// The rank whose text is the most common; the lowest such rank.
size_t most_common(const std::vector<std::string>& texts) {
  std::map<std::string_view, int> counts;
  for (const std::string& text : texts) ++counts[text];
  size_t best = 0;
  for (size_t rank = 1; rank < texts.size(); ++rank)
    if (counts[texts[rank]] > counts[texts[best]]) best = rank;
  return best;
}

// A header from each rank for a text that all ranks should share: "HASH PROCESS HOST".
std::vector<std::string> heads_of(comm::World& world, comm::Communicator& all, const std::string& text) {
  return comm::gather_texts(
      all, fmt::format("{} {} {}", to_hex(hash64(text)), static_cast<int64_t>(::getpid()), world.host()));
}
std::string_view hash_of(const std::string& head) {
  return std::string_view(head).substr(0, kHashDigits);
}
std::string_view host_of(const std::string& head) {
  return std::string_view(head).substr(head.find(' ', kHashDigits + 1) + 1);
}

// Throws if the lines differ between ranks. Returns the headers of the text.
std::vector<std::string> require_same(comm::World& world, comm::Communicator& all, const std::string& text) {
  std::vector<std::string> heads = heads_of(world, all, text);
  if (std::all_of(heads.begin(), heads.end(),
                  [&](const std::string& head) { return hash_of(head) == hash_of(heads.front()); })) {
    return heads;
  }
  const std::vector<std::string> texts = comm::gather_texts(all, text);
  const size_t usual = most_common(texts);
  const auto odd = static_cast<size_t>(
      std::find_if(texts.begin(), texts.end(), [&](const std::string& one) { return one != texts[usual]; }) -
      texts.begin());
  const Named mine = named(texts[odd]), others = named(texts[usual]);
  const std::vector<std::string_view> names = differing(mine, others);
  constexpr size_t kMostNames = 5;
  std::string more;
  for (size_t i = 1; i < std::min(names.size(), kMostNames); ++i)
    more += fmt::format("{}{}", i == 1 ? "; they also differ in " : ", ", names[i]);
  if (names.size() > kMostNames) more += fmt::format(" and {} more", names.size() - kMostNames);
  // A key already starts with a bracket.
  const std::string_view first = names.front();
  throw ConfigError(
      "{}{} of rank {} (host {}) is {}: rank {} (host {}) has {}{}. Start all ranks with the same program, "
      "configuration and options",
      first.front() == '[' ? "" : "[parallel] ", first, odd, host_of(heads[odd]), value_of(mine, first),
      usual, host_of(heads[usual]), value_of(others, first), more);
}

}  // namespace

int64_t require_same_start(comm::World& world, comm::Communicator& all, const RunOptions& options) {
  if (all.size() == 1) return 0;
  std::vector<std::string> lines = {fmt::format("the program's version\t{}", program_version()),
                                    fmt::format("--resume\t{}", options.resume),
                                    fmt::format("--accept-changes\t{}", options.accept_changes),
                                    fmt::format("--dry-run\t{}", options.dry_run)};
  for (std::string& line : lines_of(options.config)) lines.push_back(std::move(line));
  const std::vector<std::string> heads = require_same(world, all, joined(lines));
  const std::string& first = heads.front();
  return host_of(first) == world.host() ? std::atoll(first.c_str() + kHashDigits + 1) : 0;
}

void require_same_work(comm::World& world, comm::Communicator& all, const config::RunConfig& resolved,
                       const config::RunData& data, const program::ProgramSet& set) {
  if (all.size() == 1) return;
  require_same(world, all, joined(lines_of(resolved)));
  const auto stage_ranks =
      static_cast<size_t>(set.options.mesh.ranks() / set.options.mesh.size(graph::Axis::kPipeline));
  struct Part {
    const char* what;
    std::string mine;
    size_t alike;  // size of each group of consecutive ranks that have the same
    const char* advice;
  };
  const Part parts[] = {
      {"[data.train] the training tokens", config::data_fingerprint(data), static_cast<size_t>(all.size()),
       "give all hosts the same files"},
      {"[parallel] the compiled step", program::fingerprint(set), stage_ranks,
       "if their processors differ, set STRATA_MAX_CPU_ISA to an ISA that all of them have (see strata "
       "doctor)"}};
  for (const Part& part : parts) {
    const std::vector<std::string> heads = heads_of(world, all, part.mine);
    for (size_t rank = 1; rank < heads.size(); ++rank) {
      const size_t other = rank / part.alike * part.alike;
      if (hash_of(heads[rank]) == hash_of(heads[other])) continue;
      throw ConfigError("{} of rank {} (host {}) differ from those of rank {} (host {}); {}", part.what, rank,
                        host_of(heads[rank]), other, host_of(heads[other]), part.advice);
    }
  }
}

}  // namespace strata::training
