#include "train/copy_plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/exchange.h"
#include "program/memory_report.h"
#include "train/memory_folder.h"
#include "train/snapshots.h"

namespace strata::training {
namespace {

std::string words(int64_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

int64_t step_bytes(const config::RecoveryTable& keys, const program::ProgramSet& set) {
  return set.arena_bytes + program::save_staging_bytes(set) +
         (has_snapshots(keys, set) ? snapshot_bytes(keys, set) : 0);
}

// Bytes that copies take: of those that this rank writes, and of those on its host, next to the steps of the
// ranks there.
struct Need {
  int64_t own = 0, on_host = 0, of_steps = 0;
};

Need need_of(const config::RecoveryTable& keys, const program::ProgramSet& set,
             const std::vector<int>& host_of, const std::vector<int>& partners, comm::Communicator& all) {
  const std::vector<double> copies = comm::gather_values(all, static_cast<double>(copy_bytes(set)));
  const std::vector<double> steps = comm::gather_values(all, static_cast<double>(step_bytes(keys, set)));
  const int me = all.rank(), host = host_of[static_cast<size_t>(me)];
  Need need;
  const auto add = [&](int writer, double bytes) {
    if (writer == me) need.own += static_cast<int64_t>(bytes);
    if (host_of[static_cast<size_t>(writer)] == host) need.on_host += static_cast<int64_t>(bytes);
  };
  for (size_t rank = 0; rank < copies.size(); ++rank) {
    add(static_cast<int>(rank), copies[rank]);
    if (!partners.empty()) add(partners[rank], copies[rank]);
    if (host_of[rank] == host) need.of_steps += static_cast<int64_t>(steps[rank]);
  }
  return need;
}

// Why this host cannot store them; "": it can.
std::string lack_of_space(const Need& need, const comm::World& world, FileSystem& files, const Path& run) {
  find_memory_folder(run);  // throws if it is not this user's
  const Path shared = memory_folder(run).parent_path();
  const int64_t there = memory_folder_bytes(run);  // which the new copies replace
  const int64_t free = static_cast<int64_t>(files.free_bytes(shared)) + there;
  if (::access(shared.c_str(), W_OK) != 0)
    return fmt::format("{} on host {} cannot be written: {}", shared.string(), world.host(),
                       std::strerror(errno));
  if (need.on_host > free) {
    return fmt::format("the copies take {} in {} on host {}: only {} are free", words(need.on_host),
                       shared.string(), world.host(), words(free));
  }
  const int64_t memory = holdable_memory();
  if (memory == 0 || need.on_host + need.of_steps <= memory + there) return "";
  return fmt::format("the copies take {} of memory on host {}: only {} are free {}, and the steps take {}",
                     words(need.on_host), world.host(), words(memory + there), where_memory_ends(),
                     words(need.of_steps));
}

}  // namespace

std::string interval_in_words(const config::Interval& interval) {
  if (interval.kind == config::Interval::Kind::kAuto) return "for at most 1 % of the time";
  return "every " + to_string(interval);
}

std::vector<const program::Persistent*> copied_values(const program::ProgramSet& set) {
  std::vector<const program::Persistent*> values;
  for (const program::Persistent& value : set.persistent)
    if (is_kept_in_snapshots(value)) values.push_back(&value);
  return values;
}

int64_t copy_bytes(const program::ProgramSet& set) {
  int64_t bytes = 0;
  for (const program::Persistent* value : copied_values(set)) bytes += value->bytes;
  return 2 * bytes;
}

bool budget_holds_copies(const config::RecoveryTable& keys, const program::ProgramSet& set, int64_t bytes) {
  const int64_t budget = set.options.memory_budget;
  return budget == 0 || step_bytes(keys, set) + bytes <= budget;
}

std::vector<int> partners_on_hosts(const std::vector<int>& host_of) {
  std::map<int, std::vector<int>> ranks_of;  // by host
  for (size_t rank = 0; rank < host_of.size(); ++rank)
    ranks_of[host_of[rank]].push_back(static_cast<int>(rank));
  if (ranks_of.size() < 2) return {};
  std::vector<int> partners(host_of.size());
  for (auto host = ranks_of.begin(); host != ranks_of.end(); ++host) {
    const auto next = std::next(host) == ranks_of.end() ? ranks_of.begin() : std::next(host);
    for (size_t i = 0; i < host->second.size(); ++i)
      partners[static_cast<size_t>(host->second[i])] = next->second[i % next->second.size()];
  }
  return partners;
}

CopyPlan plan_copies(const config::RecoveryTable& keys, bool is_launched, const program::ProgramSet& set,
                     comm::World& world, comm::Communicator& all, FileSystem& files, const Path& run) {
  CopyPlan plan{.interval = keys.copies};
  const bool is_auto = keys.copies.kind == config::Interval::Kind::kAuto;
  if (is_auto && !is_launched) plan.interval = {};
  if (!plan.makes_copies()) return plan;
  std::vector<int> host_of = world.hosts().domain_of;
  host_of.resize(static_cast<size_t>(world.size()), 0);
  if (keys.peer_copies == config::PeerCopies::kAuto) plan.partners = partners_on_hosts(host_of);

  const Need need = need_of(keys, set, host_of, plan.partners, all);
  std::string problem;
  try {
    if (is_auto && !budget_holds_copies(keys, set, need.own)) {
      problem = fmt::format("the copies of a rank take {}: more than memory.budget leaves", words(need.own));
    } else if (world.local_rank() == 0) {
      problem = lack_of_space(need, world, files, run);
    }
  } catch (const Error& error) {
    problem = error.what();
  }
  for (const std::string& found : comm::gather_texts(all, problem)) {
    if (found.empty()) continue;
    if (!is_auto) {
      throw ConfigError("[recovery.copies] {}; free memory, make /dev/shm larger, or set it to \"never\"",
                        found);
    }
    if (world.rank() == 0)
      log_warning("[recovery.copies] {}; none are made: a restart uses the newest checkpoint", found);
    return {};
  }
  if (world.rank() == 0) {
    log_info("copies: {} in /dev/shm on this host, {}{}", words(need.on_host),
             interval_in_words(plan.interval), plan.partners.empty() ? "" : ", each on another host too");
  }
  return plan;
}

}  // namespace strata::training
