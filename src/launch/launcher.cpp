#include "launch/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "launch/process.h"
#include "train/launched.h"

namespace strata::launch {
namespace {

constexpr double kVersionSeconds = 20;

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find_first_not_of(" \t", at);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(text.find_first_of(" \t", begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
    at = end;
  }
  return words;
}

// "a:4,b:4"
std::string list_of(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.slots);
  return text;
}

std::string names_of(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts) text += (text.empty() ? "" : ",") + host.name;
  return text;
}

std::string text_of(const LauncherSearch& search, const char* name) {
  const char* const value = search.variable(name);
  return value != nullptr ? value : "";
}

// Open MPI's setting has alternatives: "ssh : rsh".
std::string first_agent(const LauncherSearch& search, const std::string& list) {
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(':', at), list.size());
    const std::vector<std::string> words = words_of(std::string_view(list).substr(at, end - at));
    if (!words.empty() && search.find_program(words.front())) return words.front();
    at = end + 1;
  }
  return "";
}

}  // namespace

LauncherSearch search_of_this_machine() {
  return {.variable = [](const char* name) -> const char* { return std::getenv(name); },
          .find_program = [](const std::string& name) { return find_program(name); },
          .version =
              [](const Path& program) {
                return run_captured({program.string(), "--version"}, kVersionSeconds).output;
              }};
}

std::optional<LauncherKind> kind_of_version(std::string_view text) {
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (has("Open MPI") || has("OpenRTE") || has("PRRTE")) return LauncherKind::kOpenMpi;
  if (has("HYDRA") || has("MPICH") || has("Intel(R) MPI")) return LauncherKind::kHydra;
  return std::nullopt;
}

Launcher find_launcher(const LauncherSearch& search) {
  if (search.variable("SLURM_JOB_ID") != nullptr) {
    if (const auto srun = search.find_program("srun"))
      return {.kind = LauncherKind::kSlurm, .program = *srun};
  }
  for (const char* name : {"mpirun", "mpiexec"}) {
    const auto found = search.find_program(name);
    if (!found) continue;
    const std::string version = search.version(*found);
    if (const auto kind = kind_of_version(version)) return {.kind = *kind, .program = *found};
    throw ConfigError(
        "[{}] --version printed \"{}\": expected Open MPI, MPICH or Intel MPI. Put the mpirun of one of them first on "
        "PATH",
        found->string(), version.substr(0, version.find('\n')));
  }
  throw ConfigError(
      "[launch] found neither mpirun nor mpiexec on PATH, and no srun in a Slurm job: expected one of them. Install "
      "Open MPI (Debian: openmpi-bin); ranks that are threads of one process need none: strata train --ranks N");
}

std::vector<std::string> start_command(const Launcher& launcher, const Start& start) {
  std::vector<std::string> out{launcher.program.string()};
  const auto add = [&](std::initializer_list<std::string> words) { out.insert(out.end(), words); };
  const std::string ranks = std::to_string(start.ranks), attempt = std::to_string(start.attempt);
  switch (launcher.kind) {
    case LauncherKind::kOpenMpi:
      add({"-n", ranks});
      if (start.is_root) add({"--allow-run-as-root"});
      // More ranks than cores: strata warns, and the user decides. Named hosts have their slots.
      if (start.hosts.empty()) {
        add({"--oversubscribe"});
      } else {
        add({"--host", list_of(start.hosts)});
      }
      if (start.ends_at_once) add({"--mca", "odls_base_sigkill_timeout", "0"});
      add({"-x", training::kLaunchAttempt});
      break;
    case LauncherKind::kHydra:
      add({"-n", ranks});
      if (!start.hosts.empty()) add({"-hosts", list_of(start.hosts)});
      add({"-genv", training::kLaunchAttempt, attempt});
      break;
    case LauncherKind::kSlurm:
      add({"--ntasks=" + ranks, "--kill-on-bad-exit=1"});
      if (!start.hosts.empty()) {
        add({fmt::format("--nodes={}", start.hosts.size()), "--nodelist=" + names_of(start.hosts)});
      }
      add({fmt::format("--export=ALL,{}={}", training::kLaunchAttempt, attempt)});
      break;
  }
  out.insert(out.end(), start.of_rank.begin(), start.of_rank.end());
  return out;
}

std::vector<std::string> remote_agent(const Launcher& launcher, const LauncherSearch& search,
                                      double seconds) {
  if (launcher.kind == LauncherKind::kSlurm) {
    return {launcher.program.string(), "--overlap", "--nodes=1", "--ntasks=1", "--time=1", "--nodelist"};
  }
  const bool is_open_mpi = launcher.kind == LauncherKind::kOpenMpi;
  const char* const setting = is_open_mpi ? "OMPI_MCA_plm_rsh_agent" : "HYDRA_LAUNCHER_EXEC";
  const std::string asked = text_of(search, setting);
  const std::string agent = first_agent(search, asked.empty() ? "ssh:rsh" : asked);
  if (agent.empty()) {
    throw ConfigError(
        "[launch] found no {}: expected the program with which {} starts ranks on other hosts. Install openssh-client, "
        "or set {}",
        asked.empty() ? "ssh" : asked, launcher.program.filename().string(), setting);
  }
  std::vector<std::string> out{agent};
  if (Path(agent).filename() == "ssh") {
    out.insert(out.end(), {"-o", "BatchMode=yes", "-o",
                           fmt::format("ConnectTimeout={}", std::max(1.0, std::ceil(seconds)))});
  }
  if (is_open_mpi) {
    for (std::string& word : words_of(text_of(search, "OMPI_MCA_plm_rsh_args")))
      out.push_back(std::move(word));
  }
  return out;
}

}  // namespace strata::launch
