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

// Splits the tensors, in order, into shards within the size limit.
std::vector<std::span<const TensorView>> split_into_shards(const ModelFiles& model) {
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

// Whether a file belongs to a model folder and may be replaced with it.
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

// Whether the folder exists. ConfigError if it contains anything that must not be replaced.
bool check_target(const Path& folder, const ModelFiles& model) {
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) return false;
  if (!std::filesystem::is_directory(folder, error))
    throw ConfigError("[{}] is a file; expected a folder to write the model to", folder.string());
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file(error) || !belongs_to_model_folder(name, model))
      throw ConfigError(
          "[{}] contains '{}', which does not belong to a model folder; choose an empty or new folder",
          folder.string(), name);
  }
  return true;
}

}  // namespace

void check_space(FileSystem& files, const Path& folder, uint64_t bytes, std::string_view what) {
  const uint64_t free = files.free_bytes(folder);
  if (free < bytes)
    throw WorldError(
        "[{}] {} needs {}, but the disk has {}: {} are missing; free some space or choose another folder",
        folder.string(), what, human_bytes(static_cast<double>(bytes)),
        human_bytes(static_cast<double>(free)), human_bytes(static_cast<double>(bytes - free)));
}

uint64_t bytes_of(const ModelFiles& model) {
  uint64_t bytes = model.config_json.size();
  for (const auto& file : model.files) bytes += file.bytes.size();
  // A header entry takes about 100 bytes plus the name, twice with an index; files are rounded up to blocks.
  for (const auto& tensor : model.weights)
    bytes += stored_bytes(tensor, model.dtype) + 2 * tensor.name.size() + 256;
  return bytes + 4096 * (model.files.size() + split_into_shards(model).size() + 4);
}

namespace {

// model.safetensors or its shards.
std::vector<TensorFileContent> tensor_files_of(const ModelFiles& model) {
  std::vector<TensorFileContent> contents;
  const auto shards = split_into_shards(model);
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string name = shards.size() == 1
                           ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    contents.push_back({std::move(name), {shards[i].begin(), shards[i].end()}, model.dtype});
  }
  return contents;
}

// Writes the files without tensors, and the index if there are several shards.
std::vector<StoredFile> write_small_files(FileSystem& files, const Path& folder, const ModelFiles& model,
                                          std::span<const TensorFileContent> shards) {
  std::vector<StoredFile> written;
  written.push_back(write_whole_file(files, folder / "config.json", model.config_json));
  for (const auto& file : model.files) {
    STRATA_CHECK(is_plain_file_name(file.name), "'{}' is not a plain file name", file.name);
    written.push_back(write_whole_file(files, folder / file.name, file.bytes));
  }
  if (shards.size() == 1) return written;
  std::map<std::string, std::string> file_of;
  uint64_t total = 0;
  for (const TensorFileContent& shard : shards) {
    for (const TensorView& tensor : shard.tensors) {
      STRATA_CHECK(file_of.emplace(tensor.name, shard.name).second, "two tensors are named '{}'",
                   tensor.name);
      total += stored_bytes(tensor, model.dtype);
    }
  }
  written.push_back(
      write_whole_file(files, folder / "model.safetensors.index.json", format_shard_index(file_of, total)));
  return written;
}

}  // namespace

std::vector<StoredFile> write_model_files(FileSystem& files, const Path& folder, const ModelFiles& model,
                                          Together& ranks, std::vector<TensorFileContent> more,
                                          const std::function<void()>& all_read) {
  auto contents = tensor_files_of(model);
  const size_t shards = contents.size();
  contents.insert(contents.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  auto written = write_tensor_files(files, folder, contents, ranks, all_read);
  ranks.first([&] {
    auto small = write_small_files(files, folder, model, std::span(contents).first(shards));
    written.insert(written.end(), std::make_move_iterator(small.begin()),
                   std::make_move_iterator(small.end()));
  });
  return written;
}

void write_hf_directory(FileSystem& files, const Path& folder, const ModelFiles& model, Together ranks) {
  Path target = std::filesystem::absolute(folder).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "out/" is "out"
  const Path parent = target.parent_path();
  const std::string suffix = "-" + ranks.of_first(std::to_string(::getpid()));
  const Path temporary = parent / (target.filename().string() + ".tmp" + suffix);
  const Path replaced = parent / (target.filename().string() + ".old" + suffix);
  bool replaces = false, moved = false;
  ranks.first([&] {
    replaces = check_target(folder, model);
    files.create_directories(parent);
    check_space(files, parent, bytes_of(model), "the model");
  });
  try {
    ranks.first([&] {
      files.remove_tree(temporary);
      files.create_directories(temporary);
    });
    auto written = write_model_files(files, temporary, model, ranks);
    ranks.first([&] {
      // The publisher edits the model card, so it gets no checksum.
      std::erase_if(written, [](const StoredFile& file) { return file.name == "README.md"; });
      write_whole_file(files, temporary / kChecksumsFile, format_checksums(written));
      files.sync_directory(temporary);
      if (replaces) {
        files.rename(target, replaced);
        moved = true;
      }
      files.rename(temporary, target);
    });
  } catch (...) {
    // Restore the old folder and report the first error.
    try {
      if (moved && !std::filesystem::exists(target)) files.rename(replaced, target);
      if (ranks.is_first()) files.remove_tree(temporary);
    } catch (const std::exception&) {
    }
    throw;
  }
  ranks.first([&] {
    files.sync_directory(parent);
    if (replaces) files.remove_tree(replaced);
  });
}

}  // namespace strata::checkpoint
