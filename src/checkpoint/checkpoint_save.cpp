#include <unistd.h>

#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/checkpoint.h"

namespace strata::checkpoint {
namespace {

std::string folder_name(int64_t step) {
  return fmt::format("step-{:08}", step);
}

uint64_t bytes_of(const CheckpointContent& content) {
  uint64_t bytes = bytes_of(content.model) + content.state_json.size();
  for (const auto& tensor : content.optimizer)
    bytes += static_cast<uint64_t>(tensor.shape.elements() * size_of(tensor.memory_dtype)) +
             2 * tensor.name.size() + 256;
  return bytes + 4 * 4096;
}

// Removes the leftovers of saves that died. The lock keeps other processes from saving here.
void tidy(FileSystem& files, const Path& folder) {
  std::vector<Path> entries;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) entries.push_back(entry.path());
  for (const auto& path : entries) {
    const std::string name = path.filename().string();
    if (name.starts_with("latest.tmp-")) files.remove(path);
    if (!name.starts_with("step-")) continue;
    if (name.find(".tmp-") != std::string::npos) files.remove_tree(path);
    if (!name.ends_with(kReplacedSuffix)) continue;
    const Path original = folder / name.substr(0, name.size() - kReplacedSuffix.size());
    if (std::filesystem::exists(original)) {
      files.remove_tree(path);
    } else {
      files.rename(path, original);
    }
  }
}

// Writes the model's files and optimizer.safetensors. Rank 0 writes state.json and the manifest afterwards.
Manifest write_content(FileSystem& files, const Path& folder, const CheckpointContent& content,
                       Together& ranks, const std::function<void()>& all_read) {
  std::vector<TensorFileContent> more;
  if (!content.optimizer.empty()) more.push_back({"optimizer.safetensors", content.optimizer, std::nullopt});
  Manifest manifest{content.step, content.program, utc_timestamp(), content.health, content.retention, {}};
  manifest.files = write_model_files(files, folder, content.model, ranks, std::move(more), all_read);
  return manifest;
}

void finish_content(FileSystem& files, const Path& folder, const CheckpointContent& content,
                    Manifest manifest) {
  manifest.files.push_back(write_whole_file(files, folder / "state.json", content.state_json));
  write_whole_file(files, folder / "manifest.json", format_manifest(manifest));
  files.sync_directory(folder);
}

Path replaced_name(const Path& target) {
  Path path = target;
  path += kReplacedSuffix;
  return path;
}

// Moves the finished folder to its name, after moving a checkpoint of the same step aside. Both are complete,
// and readers find one of them at any time.
void put_in_place(FileSystem& files, const Path& temporary, const Path& target) {
  const bool replaces = std::filesystem::exists(target);
  if (replaces) files.rename(target, replaced_name(target));
  try {
    files.rename(temporary, target);
  } catch (...) {
    try {
      if (replaces) files.rename(replaced_name(target), target);
    } catch (const std::exception&) {  // readers still find it under its other name; report the first error
    }
    throw;
  }
  files.sync_directory(target.parent_path());
}

}  // namespace

SavedCheckpoint save_checkpoint(FileSystem& files, const Path& folder, const CheckpointContent& content,
                                Together ranks, const std::function<void()>& all_read) {
  STRATA_CHECK(content.step >= 0, "step {} is negative", content.step);
  SavedCheckpoint saved;
  saved.path = folder / folder_name(content.step);
  std::optional<FileLock> lock;  // rank 0's, for all
  ranks.first([&] {
    if (!std::filesystem::exists(folder)) {
      files.create_directories(folder);
      files.sync_directory(std::filesystem::absolute(folder).parent_path());
    }
    lock.emplace(folder / ".lock");
    try {
      tidy(files, folder);
    } catch (const std::exception& error) {  // leftovers do not prevent a save
      saved.warnings.push_back(error.what());
    }
    check_space(files, folder, bytes_of(content), "the checkpoint");
  });
  const Path temporary = folder / fmt::format("{}.tmp-{}", folder_name(content.step),
                                              ranks.of_first(std::to_string(::getpid())));
  try {
    ranks.first([&] { files.create_directories(temporary); });
    Manifest manifest = write_content(files, temporary, content, ranks, all_read);
    ranks.first([&] {
      finish_content(files, temporary, content, std::move(manifest));
      saved.bytes = read_manifest(temporary).bytes();
      put_in_place(files, temporary, saved.path);
    });
  } catch (...) {
    try {
      if (ranks.is_first()) files.remove_tree(temporary);
    } catch (const std::exception&) {  // the next save will remove it; report the first error
    }
    throw;
  }

  // The checkpoint exists now, so errors become warnings.
  if (!ranks.is_first()) return saved;
  try {
    files.remove_tree(replaced_name(saved.path));
    write_file_atomically(files, folder / "latest", saved.path.filename().string() + "\n");
    auto pruned = prune(files, folder, content.retention, saved.path);
    saved.pruned = std::move(pruned.removed);
    saved.warnings.insert(saved.warnings.end(), pruned.warnings.begin(), pruned.warnings.end());
  } catch (const Error& error) {
    saved.warnings.push_back(error.what());
  }
  return saved;
}

}  // namespace strata::checkpoint
