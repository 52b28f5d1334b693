#include "checkpoint/retention.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/function_ref.h"
#include "checkpoint/checkpoint.h"

namespace strata::checkpoint {
namespace {

// "step-00000200" → 200; -1 for any other name.
int64_t step_of(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return -1;
  const std::string_view digits = name.substr(kPrefix.size());
  if (digits.size() < 8 || digits.size() > 18 ||
      digits.find_first_not_of("0123456789") != std::string_view::npos)
    return -1;
  return std::stoll(std::string(digits));
}

// Calls `take` for every folder in `folder`, which need not exist.
void for_each_folder(const Path& folder, FunctionRef<void(const Path&)> take) {
  std::error_code error;
  auto it = std::filesystem::directory_iterator(folder, error);
  // A folder that cannot be read is not empty: a run must not start from scratch because of it.
  const auto check = [&] {
    if (error && error != std::errc::no_such_file_or_directory)
      throw WorldError("[{}] cannot list the checkpoints: {}", folder.string(), error.message());
  };
  check();
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error), check()) {
    std::error_code ignored;
    if (it->is_directory(ignored)) take(it->path());
  }
}

// The step of "step-00000200SUFFIX"; -1 for any other name.
int64_t step_before(std::string_view suffix, std::string_view name) {
  return name.ends_with(suffix) ? step_of(name.substr(0, name.size() - suffix.size())) : -1;
}

using Found = std::map<int64_t, Path, std::greater<>>;

std::vector<ListedCheckpoint> list_of(Found&& found) {
  std::vector<ListedCheckpoint> list;
  for (auto& [step, path] : found) list.push_back({std::move(path), step});
  return list;
}

// The checkpoints whose manifest can be read; the others are reported in `warnings`.
std::vector<RetentionCandidate> readable(const std::vector<ListedCheckpoint>& list,
                                         std::vector<std::string>& warnings) {
  std::vector<RetentionCandidate> candidates;
  for (const auto& listed : list) {
    try {
      candidates.push_back({listed, read_manifest(listed.path).health});
    } catch (const Error& error) {
      warnings.push_back(error.what());
    }
  }
  return candidates;
}

std::vector<Path> discarded_to_prune(const Path& folder, const RetentionPolicy& policy,
                                     std::vector<std::string>& warnings) {
  const auto list = list_discarded(folder);
  if (policy.keep_discarded) return choose_to_prune(readable(list, warnings), policy);
  std::vector<Path> all;
  for (const auto& listed : list) all.push_back(listed.path);
  return all;
}

// Whether checkpoint i is the first at or after a multiple of `every`, including step 0. Saves need not fall
// on the multiples.
bool begins_interval(std::span<const RetentionCandidate* const> newest_first, size_t i, int64_t every) {
  const auto interval = [&](size_t at) { return newest_first[at]->checkpoint.step / every; };
  if (interval(i) == 0) return newest_first[i]->checkpoint.step == 0;
  return i + 1 == newest_first.size() || interval(i + 1) < interval(i);
}

}  // namespace

std::vector<ListedCheckpoint> list_checkpoints(const Path& folder) {
  Found found;
  for_each_folder(folder, [&](const Path& path) {
    const std::string name = path.filename().string();
    if (const int64_t step = step_of(name); step >= 0) found[step] = path;
    if (const int64_t step = step_before(kReplacedSuffix, name); step >= 0) found.emplace(step, path);
  });
  return list_of(std::move(found));
}

std::vector<ListedCheckpoint> list_discarded(const Path& folder) {
  Found found;
  for_each_folder(folder, [&](const Path& path) {
    const int64_t step = step_before(kDiscardedSuffix, path.filename().string());
    if (step >= 0) found[step] = path;
  });
  return list_of(std::move(found));
}

bool higher_is_better(std::string_view metric) {
  return metric.ends_with("/acc") || metric.ends_with("/acc_norm");
}

std::optional<double> measured(const Health& health, const std::string& metric) {
  const auto found = health.metrics.find(metric);
  if (found == health.metrics.end() && metric != "loss") return std::nullopt;
  const std::optional<double> value = found == health.metrics.end() ? health.loss : found->second;
  return value && std::isfinite(*value) ? value : std::nullopt;
}

RetentionPolicy policy_of(const Path& folder) {
  for (const auto& listed : list_checkpoints(folder)) {
    try {
      if (auto policy = read_manifest(listed.path).retention) return *policy;
    } catch (const Error&) {  // try an older one
    }
  }
  return {.keep_best = 1};  // the default of a run's configuration
}

std::vector<Path> choose_to_prune(std::span<const RetentionCandidate> newest_first,
                                  const RetentionPolicy& policy) {
  std::vector<const RetentionCandidate*> healthy;
  for (const auto& candidate : newest_first) {
    if (candidate.health.good()) healthy.push_back(&candidate);
  }
  if (healthy.empty() || policy.keep_last <= 0) return {};

  std::set<int64_t> kept;
  for (size_t i = 0; i < healthy.size(); ++i) {
    const int64_t step = healthy[i]->checkpoint.step;
    if (static_cast<int64_t>(i) < policy.keep_last) kept.insert(step);
    if (policy.keep_every > 0 && begins_interval(healthy, i, policy.keep_every)) kept.insert(step);
  }
  std::vector<std::pair<double, int64_t>> ranking;
  for (const auto* candidate : healthy) {
    if (const auto value = measured(candidate->health, policy.best_metric))
      ranking.emplace_back(higher_is_better(policy.best_metric) ? -*value : *value,
                           candidate->checkpoint.step);
  }
  std::sort(ranking.begin(), ranking.end());
  for (size_t i = 0; i < ranking.size() && static_cast<int64_t>(i) < policy.keep_best; ++i)
    kept.insert(ranking[i].second);
  const auto& newest = newest_first.front();
  if (!newest.health.good()) kept.insert(newest.checkpoint.step);

  std::vector<Path> gone;
  for (const auto& candidate : newest_first) {
    if (!kept.contains(candidate.checkpoint.step)) gone.push_back(candidate.checkpoint.path);
  }
  return gone;
}

PruneResult prune(FileSystem& files, const Path& folder, const RetentionPolicy& policy,
                  const Path& just_saved) {
  PruneResult result;
  const auto candidates = readable(list_checkpoints(folder), result.warnings);
  const auto newest =
      std::find_if(candidates.begin(), candidates.end(), [](const auto& c) { return c.health.good(); });
  if (newest == candidates.end()) return result;
  auto gone = choose_to_prune(candidates, policy);
  for (auto& path : discarded_to_prune(folder, policy, result.warnings)) gone.push_back(std::move(path));
  if (gone.empty()) return result;
  const auto problems = newest->checkpoint.path == just_saved ? std::vector<Problem>{}
                                                              : verify_checkpoint(newest->checkpoint.path);
  for (const auto& problem : problems)
    result.warnings.push_back(fmt::format("[{}] {}: {}; no checkpoint is removed",
                                          newest->checkpoint.path.string(), problem.file, problem.what));
  if (!problems.empty()) return result;
  for (const auto& path : gone) {
    try {
      // Rename first: an interrupted removal leaves a temporary folder for the next save, not a damaged
      // checkpoint.
      Path rubbish = path;
      rubbish += ".tmp-pruned";
      files.rename(path, rubbish);
      files.remove_tree(rubbish);
      result.removed.push_back(path);
    } catch (const Error& error) {
      result.warnings.push_back(error.what());
    }
  }
  return result;
}

}  // namespace strata::checkpoint
