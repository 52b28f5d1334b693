#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"

namespace strata::checkpoint {
namespace {

// The checksums of a manifest, to be looked up while tensors are read.
class ExpectedChecksums {
 public:
  explicit ExpectedChecksums(const Manifest& manifest) {
    for (const auto& file : manifest.files) {
      heads_[file.name] = file.checksum;
      for (const auto& tensor : file.tensors) tensors_[{file.name, tensor.name}] = tensor.checksum;
    }
  }
  void check_head(const TensorFile& file) const {
    const auto found = heads_.find(file.path().filename().string());
    if (found == heads_.end()) throw DataError("[{}] is not in the manifest", file.path().string());
    if (found->second != file.head_checksum())
      throw DataError("[{}] its header was changed", file.path().string());
  }
  void check_tensor(const TensorFile& file, const TensorInfo& tensor, uint64_t checksum) const {
    const auto found = tensors_.find({file.path().filename().string(), tensor.name});
    if (found == tensors_.end() || found->second != checksum)
      throw DataError("[{}] '{}' does not match its checksum: the file was damaged", file.path().string(),
                      tensor.name);
  }

 private:
  std::map<std::string, uint64_t> heads_;
  std::map<std::pair<std::string, std::string>, uint64_t> tensors_;
};

std::string read_checked(const Path& checkpoint, const Manifest& manifest, const std::string& name) {
  const StoredFile* file = manifest.find(name);
  if (file == nullptr) throw DataError("[{}] holds no {}", checkpoint.string(), name);
  std::string text = read_file(checkpoint / name);
  if (hash64(text) != file->checksum)
    throw DataError("[{}] does not match its checksum: the file was damaged", (checkpoint / name).string());
  return text;
}

void load_checked(const TensorSource& source, const Manifest& manifest,
                  std::span<const MutableTensorView> views) {
  const ExpectedChecksums expected(manifest);
  for (const auto& file : source.files) expected.check_head(*file);
  load_tensors(source, views, {}, [&](const TensorFile& file, const TensorInfo& tensor, uint64_t checksum) {
    expected.check_tensor(file, tensor, checksum);
  });
}

[[noreturn]] void nothing_usable(const Path& folder, const std::vector<SkippedCheckpoint>& skipped) {
  std::string reasons;
  for (const auto& one : skipped) reasons += "\n  " + one.path.filename().string() + ": " + one.reason;
  throw DataError(
      "[{}] holds {} checkpoint(s) and none can be used:{}\nrestore one, or start a new run in another "
      "folder",
      folder.string(), skipped.size(), reasons);
}

// The newest checkpoint that `use` takes without a DataError.
template <typename Result, typename Use>
std::optional<Result> first_usable(const Path& folder, const FindOptions& options, Use use) {
  std::vector<SkippedCheckpoint> skipped;
  for (const auto& listed : list_checkpoints(folder)) {
    try {
      Manifest manifest = read_manifest(listed.path);
      if (options.healthy && !manifest.health.good())
        throw DataError("[{}] was saved with a loss of {} and a gradient norm of {}{}", listed.path.string(),
                        manifest.health.loss, manifest.health.grad_norm,
                        manifest.health.finite ? "" : ", and values that are not finite");
      if (options.verify) {
        const auto faults = verify_checkpoint(listed.path);
        if (!faults.empty())
          throw DataError("[{}] {}: {}", listed.path.string(), faults[0].file, faults[0].what);
      }
      Result result = use(listed.path, std::move(manifest));
      result.skipped = std::move(skipped);
      return result;
    } catch (const DataError& error) {
      skipped.push_back({listed.path, error.what()});
    }
  }
  if (!skipped.empty()) nothing_usable(folder, skipped);
  return std::nullopt;
}

LoadedCheckpoint load_with(const Path& checkpoint, Manifest manifest,
                           std::span<const MutableTensorView> weights,
                           std::span<const MutableTensorView> optimizer) {
  LoadedCheckpoint loaded{checkpoint, std::move(manifest), {}, {}};
  loaded.state_json = read_checked(checkpoint, loaded.manifest, "state.json");
  read_checked(checkpoint, loaded.manifest, "config.json");
  load_checked(open_tensors(checkpoint), loaded.manifest, weights);
  if (!optimizer.empty()) {
    if (loaded.manifest.find("optimizer.safetensors") == nullptr)
      throw DataError("[{}] holds no optimizer.safetensors; training cannot go on from it",
                      checkpoint.string());
    load_checked(open_tensor_file(checkpoint / "optimizer.safetensors"), loaded.manifest, optimizer);
  }
  return loaded;
}

void check_there(const Path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error))
    throw ConfigError("[{}] is not there; expected a checkpoint folder", path.string());
}

Path best_checkpoint(const Path& run, const std::string& metric) {
  Path best;
  double lowest = 0;
  for (const auto& listed : list_checkpoints(run / "checkpoints")) {
    try {
      const Manifest manifest = read_manifest(listed.path);
      const auto found = manifest.health.metrics.find(metric);
      if (found == manifest.health.metrics.end() || !std::isfinite(found->second)) continue;
      if (best.empty() || found->second < lowest) {
        best = listed.path;
        lowest = found->second;
      }
    } catch (const DataError&) {  // a damaged one is not the best
    }
  }
  if (best.empty())
    throw ConfigError("[{}] no checkpoint was saved with the metric '{}'; use RUN@latest", run.string(),
                      metric);
  return best;
}

}  // namespace

std::optional<FoundCheckpoint> find_checkpoint(const Path& folder, const FindOptions& options) {
  return first_usable<FoundCheckpoint>(folder, options, [](const Path& path, Manifest manifest) {
    return FoundCheckpoint{path, std::move(manifest), {}};
  });
}

LoadedCheckpoint load_checkpoint(const Path& checkpoint, std::span<const MutableTensorView> weights,
                                 std::span<const MutableTensorView> optimizer) {
  check_there(checkpoint);
  return load_with(checkpoint, read_manifest(checkpoint), weights, optimizer);
}

std::optional<LoadedCheckpoint> load_newest_checkpoint(const Path& folder,
                                                       std::span<const MutableTensorView> weights,
                                                       std::span<const MutableTensorView> optimizer,
                                                       const FindOptions& options) {
  return first_usable<LoadedCheckpoint>(folder, options, [&](const Path& path, Manifest manifest) {
    return load_with(path, std::move(manifest), weights, optimizer);
  });
}

Path resolve_model(const std::string& text, const std::string& best_metric) {
  std::error_code error;
  const auto newest = [](const Path& run) {
    const auto found = find_checkpoint(run / "checkpoints");
    if (!found) throw ConfigError("[{}] holds no checkpoint yet", run.string());
    return found->path;
  };
  if (std::filesystem::is_directory(text, error)) {
    Path path(text);
    if (std::filesystem::exists(path / "config.json", error)) return path;
    if (std::filesystem::is_directory(path / "checkpoints", error)) return newest(path);
    throw DataError("[{}] holds neither config.json nor checkpoints; expected a model folder or a run folder",
                    text);
  }
  const size_t at = text.rfind('@');
  if (at != std::string::npos && std::filesystem::is_directory(text.substr(0, at), error)) {
    const std::string which = text.substr(at + 1);
    if (which == "latest") return newest(text.substr(0, at));
    if (which == "best") return best_checkpoint(text.substr(0, at), best_metric);
    throw ConfigError("[{}] '@{}' names no checkpoint; expected @latest or @best", text, which);
  }
  throw ConfigError("[{}] is not there; expected a model folder, a run folder, RUN@latest or RUN@best", text);
}

}  // namespace strata::checkpoint
