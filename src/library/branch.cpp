#include "library/branch.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "config/layout.h"
#include "config/resolve.h"
#include "config/steerable.h"
#include "observe/metrics.h"
#include "train/run_store.h"

namespace strata::library {
namespace {

using Json = nlohmann::ordered_json;

// The checkpoint of this step; ConfigError that names the nearest ones.
Path checkpoint_of_step(const std::string& source, const Path& run, int64_t step) {
  std::optional<int64_t> below, above;
  for (const auto& listed : checkpoint::list_checkpoints(run / "checkpoints")) {
    if (listed.step == step) return listed.path;
    if (listed.step < step) {
      below = std::max(below.value_or(listed.step), listed.step);
    } else {
      above = std::min(above.value_or(listed.step), listed.step);
    }
  }
  if (!below && !above) throw ConfigError("[{}] {} has no checkpoints", source, run.string());
  const std::string nearest = below && above
                                  ? fmt::format("the nearest are those of steps {} and {}", *below, *above)
                                  : fmt::format("the nearest is that of step {}", below ? *below : *above);
  throw ConfigError("[{}] {} has no checkpoint of step {}; {}", source, run.string(), step, nearest);
}

struct Source {
  Path run, checkpoint;
};

Source find_source(const std::string& source) {
  const size_t at = source.rfind('@');
  const Path run = source.substr(0, at);
  std::error_code error;
  if (at == std::string::npos || !std::filesystem::exists(run / "run.toml", error)) {
    throw ConfigError("[{}] found no run, expected RUN@STEP, RUN@latest or RUN@best, such as runs/mine@200",
                      source);
  }
  const std::string which = source.substr(at + 1);
  int64_t step = 0;
  const auto [end, failed] = std::from_chars(which.data(), which.data() + which.size(), step);
  if (!which.empty() && failed == std::errc() && end == which.data() + which.size())
    return {run, checkpoint_of_step(source, run, step)};
  if (which != "latest" && which != "best")
    throw ConfigError("[{}] found \"@{}\", expected @STEP, @latest or @best", source, which);
  return {run, checkpoint::resolve_model(source)};
}

// Takes the settings of strata set out of the journal in a state.json: they become part of the new run's
// configuration, where the branch's own settings can replace them.
std::vector<config::NewSetting> take_steering(std::string& state) {
  std::vector<config::NewSetting> settings;
  Json json = parse_json<Json>(state);
  const auto journal = json.find("journal");
  if (journal == json.end()) return settings;
  Json others = Json::array();
  for (const Json& effect : journal->at("effects")) {
    if (effect.at("what") == "set") {
      settings.push_back({effect.at("key"), effect.at("value")});
    } else {
      others.push_back(effect);
    }
  }
  if (settings.empty()) return settings;
  (*journal)["effects"] = std::move(others);
  state = dump_json(json, 2) + "\n";
  return settings;
}

void require_no_problems(const Path& checkpoint) {
  const auto problems = checkpoint::verify_checkpoint(checkpoint);
  if (problems.empty()) return;
  throw DataError("[{}] {}: {}; branch from another checkpoint", checkpoint.string(), problems[0].file,
                  problems[0].what);
}

// Links or copies a file; returns whether it is a link.
bool take_file(FileSystem& files, const Path& from, const Path& to) {
  std::error_code error;
  std::filesystem::create_hard_link(from, to, error);
  if (!error) return true;
  std::filesystem::copy_file(from, to, error);
  if (error) throw WorldError("[{}] cannot be copied to {}: {}", from.string(), to.string(), error.message());
  files.open_for_update(to)->sync();
  return false;
}

// Puts the checkpoint into the folder `to`, with another state.json.
bool take_checkpoint(FileSystem& files, const Path& from, const Path& to, const std::string& state) {
  checkpoint::Manifest manifest = checkpoint::read_manifest(from);
  files.create_directories(to);
  bool linked = true;
  for (checkpoint::StoredFile& file : manifest.files) {
    if (file.name == "state.json") {
      file = checkpoint::write_whole_file(files, to / file.name, state);
    } else {
      linked = take_file(files, from / file.name, to / file.name) && linked;
    }
  }
  checkpoint::write_whole_file(files, to / "manifest.json", checkpoint::format_manifest(manifest));
  files.sync_directory(to);
  return linked;
}

// The configuration of the new run, as a resume of the old one would have it.
config::RunConfig branched(const Source& source, const Path& target, const std::vector<std::string>& sets,
                           std::string& state, std::vector<config::Change>& changes) {
  for (const std::string& set : sets) {
    if (set.starts_with("run.folder"))
      throw ConfigError("[--set run.folder] {} is the new run's folder; leave it out", target.string());
  }
  const std::vector<config::NewSetting> steered = take_steering(state);
  std::vector<std::string> all;
  for (const config::NewSetting& setting : steered) all.push_back(setting.key + "=" + setting.value);
  all.insert(all.end(), sets.begin(), sets.end());
  const auto stored = config::read_stored_config(source.run);
  const auto given = config::read_asked_config(source.run, all);
  STRATA_CHECK(stored && given, "{} has no run.toml", source.run.string());
  config::require_valid(*given, std::vector<config::IssueHook>{config::check_model});
  // A layout that is left to the number of ranks is that of the old run.
  const bool layout = std::any_of(sets.begin(), sets.end(),
                                  [](const std::string& set) { return set.starts_with("parallel."); });
  const config::RunConfig asked =
      config::with_degrees(*given, config::mesh_of(layout ? *given : *stored).ranks());
  const config::RunConfig old =
      config::with_degrees(config::with_settings(*stored, steered), config::mesh_of(*stored).ranks());
  changes = config::compare_for_resume(old, asked);
  config::require_resumable(changes, true);
  config::RunConfig config = config::keep_resolved(asked, old);
  std::erase_if(config.run.chosen, [&](const std::string& choice) {
    return std::any_of(sets.begin(), sets.end(), [&](const std::string& set) {
      return set.substr(0, set.find('=')) == choice.substr(0, choice.find('='));
    });
  });
  config.run.folder = target.string();
  if (asked.origin_of("run.name").kind != Origin::Kind::kSet) config.run.name = target.filename().string();
  config.run.started_in.clear();  // paths are relative to the current directory now
  return config;
}

std::string command_for(const Path& target, const config::RunConfig& config,
                        const std::vector<config::Change>& changes) {
  std::string command = fmt::format("strata train {}", target.string());
  if (const int64_t ranks = config::mesh_of(config).ranks(); ranks > 1)
    command += fmt::format(" --ranks {}", ranks);
  const bool data = std::any_of(changes.begin(), changes.end(), [](const config::Change& change) {
    return change.key.starts_with("data.") && change.key != "data.skip";
  });
  return data ? command + " --accept-changes" : command;
}

}  // namespace

Branch make_branch(const std::string& source_text, const Path& given_target,
                   const std::vector<std::string>& sets) {
  const Source source = find_source(source_text);
  Path target = given_target.lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  std::error_code error;
  if (std::filesystem::exists(target, error)) {
    throw ConfigError("[{}] exists already; choose another folder for the new run, or remove it",
                      target.string());
  }
  FileSystem& files = posix_file_system();
  Branch branch;
  branch.step = checkpoint::read_manifest(source.checkpoint).step;
  std::string state = read_file(source.checkpoint / "state.json");
  training::training_state_from_json(state, (source.checkpoint / "state.json").string());  // checks it
  const config::RunConfig config = branched(source, target, sets, state, branch.changes);

  Path temporary = target;
  temporary += fmt::format(".tmp-{}", ::getpid());
  const Path name = source.checkpoint.filename();
  try {
    files.create_directories(temporary / "checkpoints");
    const Path checkpoint = temporary / "checkpoints" / name;
    branch.linked = take_checkpoint(files, source.checkpoint, checkpoint, state);
    require_no_problems(checkpoint);
    checkpoint::write_whole_file(files, temporary / "checkpoints" / "latest", name.string() + "\n");
    checkpoint::write_whole_file(
        files, temporary / "metrics.jsonl",
        observe::event_line("branch", branch.step,
                            {{"from", source.run.string()}, {"time", unix_seconds()}}));
    checkpoint::write_whole_file(
        files, temporary / "run.toml",
        config::resolved_toml(config, fmt::format("none yet; a branch of {}", source_text)));
    files.sync_directory(temporary / "checkpoints");
    files.sync_directory(temporary);
    files.rename(temporary, target);
  } catch (...) {
    try {
      files.remove_tree(temporary);
    } catch (const std::exception&) {  // report the first error
    }
    throw;
  }
  files.sync_directory(target.has_parent_path() ? target.parent_path() : Path("."));
  branch.checkpoint = target / "checkpoints" / name;
  branch.command = command_for(target, config, branch.changes);
  return branch;
}

}  // namespace strata::library
