#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/manifest.h"

namespace strata::checkpoint {
namespace {

uint64_t stored_bytes(const TensorView& tensor, std::optional<DType> dtype) {
  return static_cast<uint64_t>(tensor.shape.elements() * size_of(stored_dtype(tensor.memory_dtype, dtype)));
}

// Consecutive tensors, cut where a shard would grow beyond the limit.
std::vector<std::span<const TensorView>> cut_into_shards(const ModelFiles& model) {
  std::vector<std::span<const TensorView>> shards;
  const std::span<const TensorView> all(model.weights);
  size_t begin = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const uint64_t size = stored_bytes(all[i], model.dtype);
    if (i > begin && bytes + size > model.max_shard_bytes) {
      shards.push_back(all.subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += size;
  }
  shards.push_back(all.subspan(begin));
  return shards;
}

// Files that belong to a model folder and may be replaced with it.
bool belongs_to_model_folder(const std::string& name, const ModelFiles& model) {
  static const std::set<std::string, std::less<>> known{"config.json",
                                                        "generation_config.json",
                                                        "tokenizer.json",
                                                        "tokenizer_config.json",
                                                        "special_tokens_map.json",
                                                        "vocab.json",
                                                        "merges.txt",
                                                        "tokenizer.model",
                                                        "added_tokens.json",
                                                        "model.safetensors.index.json",
                                                        kChecksumsFile};
  if (known.contains(name) || (name.starts_with("model") && name.ends_with(".safetensors"))) return true;
  return std::any_of(model.files.begin(), model.files.end(),
                     [&](const NamedFile& file) { return file.name == name; });
}

// Whether something is in the way, after refusing what is not ours to replace.
bool check_target(const Path& folder, const ModelFiles& model) {
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) return false;
  if (!std::filesystem::is_directory(folder, error))
    throw ConfigError("[{}] is a file; expected a folder to write the model to", folder.string());
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file(error) || !belongs_to_model_folder(name, model))
      throw ConfigError(
          "[{}] already holds '{}', which is no part of a model folder; choose an empty or new folder",
          folder.string(), name);
  }
  return true;
}

}  // namespace

void check_space(FileSystem& files, const Path& folder, uint64_t bytes, std::string_view what) {
  const uint64_t free = files.free_bytes(folder);
  if (free < bytes)
    throw WorldError(
        "[{}] {} takes {}, the disk has {} left: {} are missing; free some space or choose another folder",
        folder.string(), what, human_bytes(static_cast<double>(bytes)),
        human_bytes(static_cast<double>(free)), human_bytes(static_cast<double>(bytes - free)));
}

uint64_t bytes_of(const ModelFiles& model) {
  uint64_t bytes = model.config_json.size();
  for (const auto& file : model.files) bytes += file.bytes.size();
  // A header entry takes some 100 bytes and the name, twice with an index; files are rounded up to blocks.
  for (const auto& tensor : model.weights)
    bytes += stored_bytes(tensor, model.dtype) + 2 * tensor.name.size() + 256;
  return bytes + 4096 * (model.files.size() + cut_into_shards(model).size() + 4);
}

std::vector<StoredFile> write_model_files(FileSystem& files, const Path& folder, const ModelFiles& model) {
  std::vector<StoredFile> written;
  written.push_back(write_whole_file(files, folder / "config.json", model.config_json));
  for (const auto& file : model.files) {
    STRATA_CHECK(is_plain_file_name(file.name), "'{}' is no plain file name", file.name);
    written.push_back(write_whole_file(files, folder / file.name, file.bytes));
  }
  const auto shards = cut_into_shards(model);
  if (shards.size() == 1) {
    written.push_back(write_tensor_file(files, folder / "model.safetensors", shards[0], model.dtype));
    return written;
  }
  std::map<std::string, std::string> file_of;
  uint64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    written.push_back(write_tensor_file(files, folder / name, shards[i], model.dtype));
    for (const auto& tensor : shards[i]) {
      STRATA_CHECK(file_of.emplace(tensor.name, name).second, "two tensors are called '{}'", tensor.name);
      total += stored_bytes(tensor, model.dtype);
    }
  }
  written.push_back(
      write_whole_file(files, folder / "model.safetensors.index.json", format_shard_index(file_of, total)));
  return written;
}

void write_hf_directory(FileSystem& files, const Path& folder, const ModelFiles& model) {
  const bool replaces = check_target(folder, model);
  Path target = std::filesystem::absolute(folder).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "out/" is "out"
  const Path parent = target.parent_path();
  const std::string suffix = "-" + std::to_string(::getpid());
  const Path temporary = parent / (target.filename().string() + ".tmp" + suffix);
  const Path replaced = parent / (target.filename().string() + ".old" + suffix);
  files.create_directories(parent);
  check_space(files, parent, bytes_of(model), "the model");
  bool moved = false;
  try {
    files.remove_tree(temporary);
    files.create_directories(temporary);
    auto written = write_model_files(files, temporary, model);
    // The card is for its publisher to go on with.
    std::erase_if(written, [](const StoredFile& file) { return file.name == "README.md"; });
    write_whole_file(files, temporary / kChecksumsFile, format_checksums(written));
    files.sync_directory(temporary);
    if (replaces) {
      files.rename(target, replaced);
      moved = true;
    }
    files.rename(temporary, target);
  } catch (...) {
    // The first error is the one to report; what was there goes back to its place.
    try {
      if (moved && !std::filesystem::exists(target)) files.rename(replaced, target);
      files.remove_tree(temporary);
    } catch (const std::exception&) {
    }
    throw;
  }
  files.sync_directory(parent);
  if (replaces) files.remove_tree(replaced);
}

}  // namespace strata::checkpoint
