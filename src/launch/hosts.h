// The hosts of a run: their file, whether they answer, and which of them take the ranks of an attempt.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/launcher.h"

namespace strata::launch {

// One host a line, "NAME", "NAME slots=N" (Open MPI) or "NAME:N" (MPICH); # begins a comment. ConfigError
// for a line that is none of these, a host that is listed twice, and a file without hosts.
std::vector<HostSlots> parse_hosts(std::string_view text, const std::string& file);

// The hosts of a Slurm job, from the names that scontrol prints and SLURM_TASKS_PER_NODE, "4(x2),3".
std::vector<HostSlots> slurm_hosts(std::string_view names, std::string_view tasks_per_node);

// Whether a name is this machine's, so that no probe is needed.
bool is_this_host(const std::string& name);

// Which hosts run a command within `seconds`, all asked at the same time. `agent`: of remote_agent().
std::vector<bool> probe_hosts(const std::vector<HostSlots>& hosts, const std::vector<std::string>& agent,
                              double seconds);

// The hosts of an attempt and the slots used on each: those that answer, in the order of the file, until there are
// `ranks` slots. Hosts at the end of the file are thus spares. Fewer slots than `ranks` if too few answer.
std::vector<HostSlots> place_ranks(const std::vector<HostSlots>& hosts, const std::vector<bool>& answers,
                                   int64_t ranks);

int64_t slots_of(const std::vector<HostSlots>& hosts);

}  // namespace strata::launch
