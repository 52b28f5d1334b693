#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/expected_checksums.h"
#include "optim/optimizer.h"

namespace strata::checkpoint {
namespace {

void load_checked(const TensorSource& source, const Manifest& manifest,
                  std::span<const MutableTensorView> views, int rank, std::vector<std::string> ignore = {}) {
  const ExpectedChecksums expected(manifest);
  for (const auto& file : source.files) expected.check_head(*file);
  load_tensors(source, views, {.ignore = std::move(ignore), .checksums = &expected, .rank = rank});
}

// The views of states that a file of an optimizer has; those that a run may have newly do not change.
// ConfigError for moments that it has in other terms.
std::vector<MutableTensorView> states_in(const TensorSource& source,
                                         std::span<const MutableTensorView> views) {
  std::vector<MutableTensorView> found;
  for (const MutableTensorView& view : views) {
    const auto at = source.tensors.find(view.name);
    if (at == source.tensors.end() && optim::is_optional_state(view.name, '/')) continue;
    const bool in_file = at != source.tensors.end() && at->second.tensor->dtype;
    const bool is_code = view.memory_dtype == DType::kE4M3;
    if (in_file && is_code != (at->second.tensor->dtype == DType::kE4M3) &&
        (is_code || is_convertible(view.memory_dtype, DType::kF32)))
      throw ConfigError(
          "[optimizer.state_dtype] {} has '{}' as {}, the run as {}: moments become fp8, or other numbers again, "
          "only in a new run; keep the type that the run was started with",
          source.where, view.name, at->second.tensor->dtype_name, name_of(view.memory_dtype));
    found.push_back(view);
  }
  return found;
}

// Patterns of states that a file may have in vain.
std::vector<std::string> no_longer_there() {
  std::vector<std::string> patterns;
  for (const std::string_view state : optim::kOptionalStates) patterns.push_back(fmt::format("{}/*", state));
  return patterns;
}

[[noreturn]] void nothing_usable(const Path& folder, const std::vector<SkippedCheckpoint>& skipped) {
  std::string reasons;
  for (const auto& one : skipped) reasons += "\n  " + one.path.filename().string() + ": " + one.reason;
  throw DataError(
      "[{}] has {} checkpoint(s), but none can be used:{}\nrestore one, or start a new run in another folder",
      folder.string(), skipped.size(), reasons);
}

// The checkpoints up to a step as rank 0 lists them, because a network file system may show the other ranks
// fewer.
std::vector<Path> listed_for_all(const Path& folder, int64_t at_most, Together& ranks) {
  std::string names;
  ranks.first([&] {
    for (const auto& listed : list_checkpoints(folder))
      if (listed.step <= at_most) names += listed.path.filename().string() + '\n';
  });
  std::istringstream lines(ranks.of_first(names));
  std::vector<Path> paths;
  for (std::string name; std::getline(lines, name);) paths.push_back(folder / name);
  return paths;
}

// The newest checkpoint for which `use` throws no DataError on any rank.
template <typename Result, typename Use>
std::optional<Result> first_usable(const Path& folder, const FindOptions& options, Together& ranks, Use use) {
  std::vector<SkippedCheckpoint> skipped;
  for (const Path& path : listed_for_all(folder, options.at_most, ranks)) {
    try {
      std::optional<Result> result;
      ranks.all([&] {
        Manifest manifest = read_manifest(path);
        if (options.healthy && !manifest.health.good())
          throw DataError("[{}] was saved with {}a gradient norm of {}{}", path.string(),
                          manifest.health.loss ? fmt::format("a loss of {} and ", *manifest.health.loss) : "",
                          manifest.health.grad_norm,
                          manifest.health.finite ? "" : ", and values that are not finite");
        if (options.verify && ranks.is_first()) {
          const auto problems = verify_checkpoint(path);
          if (!problems.empty())
            throw DataError("[{}] {}: {}", path.string(), problems[0].file, problems[0].what);
        }
        result = use(path, std::move(manifest));
      });
      result->skipped = std::move(skipped);
      return result;
    } catch (const DataError& error) {
      skipped.push_back({path, error.what()});
    }
  }
  if (!skipped.empty()) nothing_usable(folder, skipped);
  return std::nullopt;
}

LoadedCheckpoint load_with(const Path& checkpoint, Manifest manifest,
                           std::span<const MutableTensorView> weights,
                           std::span<const MutableTensorView> optimizer, int rank) {
  LoadedCheckpoint loaded{checkpoint, std::move(manifest), {}, {}};
  loaded.state_json = read_checked(checkpoint, loaded.manifest, "state.json");
  check_small_files(checkpoint, loaded.manifest);
  load_checked(open_tensors(checkpoint), loaded.manifest, weights, rank);
  if (!optimizer.empty()) {
    if (loaded.manifest.find("optimizer.safetensors") == nullptr)
      throw DataError("[{}] has no optimizer.safetensors; training cannot resume from it",
                      checkpoint.string());
    const TensorSource source = open_tensor_file(checkpoint / "optimizer.safetensors");
    load_checked(source, loaded.manifest, states_in(source, optimizer), rank, no_longer_there());
  }
  return loaded;
}

void check_there(const Path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error))
    throw ConfigError("[{}] does not exist; expected a checkpoint folder", path.string());
}

// The newest checkpoint of a folder. DataError if a newer one is damaged, because users who ask for the
// newest must not get another one silently.
Path newest_checkpoint(const Path& folder) {
  const auto found = find_checkpoint(folder);
  if (!found) throw ConfigError("[{}] has no checkpoint yet", folder.string());
  for (const SkippedCheckpoint& skipped : found->skipped) {
    // A running trainer may have replaced or removed it in the meantime.
    if (!std::filesystem::exists(skipped.path)) continue;
    throw DataError(
        "[{}] is the newest checkpoint but cannot be used: {}; restore or remove it, or name the newest good "
        "one, {}",
        skipped.path.string(), skipped.reason, found->path.string());
  }
  return found->path;
}

// Nothing if a running trainer has removed the checkpoint in the meantime.
std::optional<Health> health_of(const Path& checkpoint) {
  try {
    return read_manifest(checkpoint).health;
  } catch (const DataError& damage) {
    if (!std::filesystem::exists(checkpoint)) return std::nullopt;
    throw DataError(
        "{}; the best checkpoint cannot be determined: restore or remove this one, or name another",
        damage.what());
  }
}

Path best_checkpoint(const Path& run) {
  const Path folder = run / "checkpoints";
  const std::string metric = policy_of(folder).best_metric;
  Path best;
  double best_value = 0;
  std::set<std::string> known;
  for (const auto& listed : list_checkpoints(folder)) {
    const auto health = health_of(listed.path);
    if (!health) continue;
    for (const auto& [name, value] : health->metrics) known.insert(name);
    const auto value = measured(*health, metric);
    if (!value || !health->good()) continue;
    // Ties go to the oldest: an evaluation is repeated in later checkpoints until the next one.
    if (best.empty() || (higher_is_better(metric) ? *value >= best_value : *value <= best_value)) {
      best = listed.path;
      best_value = *value;
    }
  }
  if (!best.empty()) return best;
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
  throw ConfigError(
      "[{}] no checkpoint was saved with the metric \"{}\" (checkpoint.best_metric); {}use {}@latest",
      run.string(), metric,
      names.empty() ? "no metric was evaluated before them; " : fmt::format("available metrics: {}; ", names),
      run.string());
}

// The checkpoint that FOLDER/latest names.
Path named_by_latest(const Path& file) {
  std::string name = read_file(file);
  name.erase(name.find_last_not_of(" \r\n") + 1);
  Path named = file.parent_path() / name;
  std::error_code error;
  if (!is_plain_file_name(name) || !std::filesystem::is_directory(named, error))
    throw DataError("[{}] names \"{}\", expected a checkpoint in the same folder", file.string(), name);
  return named;
}

}  // namespace

std::optional<FoundCheckpoint> find_checkpoint(const Path& folder, const FindOptions& options) {
  Together alone;
  return first_usable<FoundCheckpoint>(folder, options, alone, [](const Path& path, Manifest manifest) {
    return FoundCheckpoint{path, std::move(manifest), {}};
  });
}

LoadedCheckpoint load_checkpoint(const Path& checkpoint, std::span<const MutableTensorView> weights,
                                 std::span<const MutableTensorView> optimizer, Together ranks) {
  LoadedCheckpoint loaded;
  ranks.all([&] {
    check_there(checkpoint);
    loaded = load_with(checkpoint, read_manifest(checkpoint), weights, optimizer, ranks.rank());
  });
  return loaded;
}

std::optional<LoadedCheckpoint> load_newest_checkpoint(const Path& folder,
                                                       std::span<const MutableTensorView> weights,
                                                       std::span<const MutableTensorView> optimizer,
                                                       const FindOptions& options, Together ranks) {
  return first_usable<LoadedCheckpoint>(folder, options, ranks, [&](const Path& path, Manifest manifest) {
    return load_with(path, std::move(manifest), weights, optimizer, ranks.rank());
  });
}

Path resolve_model(const std::string& text) {
  std::error_code error;
  if (std::filesystem::is_directory(text, error)) {
    Path path(text);
    if (std::filesystem::exists(path / "config.json", error)) return path;
    if (std::filesystem::is_directory(path / "checkpoints", error))
      return newest_checkpoint(path / "checkpoints");
    if (!list_checkpoints(path).empty()) return newest_checkpoint(path);
    throw DataError("[{}] has neither config.json nor checkpoints; expected a model folder or a run folder",
                    text);
  }
  if (Path(text).filename() == "latest" && std::filesystem::is_regular_file(text, error))
    return named_by_latest(text);
  const size_t at = text.rfind('@');
  if (at != std::string::npos && std::filesystem::is_directory(text.substr(0, at), error)) {
    const std::string which = text.substr(at + 1);
    if (which == "latest") return newest_checkpoint(Path(text.substr(0, at)) / "checkpoints");
    if (which == "best") return best_checkpoint(text.substr(0, at));
    throw ConfigError("[{}] '@{}' is not a checkpoint; expected @latest or @best", text, which);
  }
  throw ConfigError("[{}] does not exist; expected a model folder, a run folder, RUN@latest or RUN@best",
                    text);
}

}  // namespace strata::checkpoint
