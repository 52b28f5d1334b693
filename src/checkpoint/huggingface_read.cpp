#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/parallel.h"
#include "checkpoint/expected_checksums.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/names.h"
#include "interop/torch/torch_file.h"

namespace strata::checkpoint {
namespace {

void add_file(TensorSource& source, const Path& path) {
  auto file = open_tensor_container(path);
  for (const auto& tensor : file->tensors()) {
    const auto [at, added] = source.tensors.emplace(tensor.name, TensorSource::Entry{file.get(), &tensor});
    if (!added)
      throw DataError("[{}] '{}' is in both {} and {}", source.where, tensor.name,
                      at->second.file->path().filename().string(), path.filename().string());
  }
  source.files.push_back(std::move(file));
}

std::vector<std::string> names_of(const TensorSource& source) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : source.tensors) names.push_back(name);
  return names;
}

// The index and the shards must agree.
void check_against_index(const TensorSource& source, const ShardIndex& index) {
  std::vector<std::string> missing, extra;
  for (const auto& [tensor, file] : index.file_of) {
    const auto found = source.tensors.find(tensor);
    if (found == source.tensors.end() || found->second.file->path().filename() != file)
      missing.push_back(tensor + " in " + file);
  }
  for (const auto& [tensor, entry] : source.tensors) {
    if (!index.file_of.contains(tensor))
      extra.push_back(tensor + " in " + entry.file->path().filename().string());
  }
  if (!missing.empty())
    throw DataError("[{}] the index names tensors that are not in the shards: {}", source.where,
                    list_names(missing));
  if (!extra.empty())
    throw DataError("[{}] the shards contain tensors that the index does not name: {}", source.where,
                    list_names(extra));
}

void check_folder(const Path& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder, error))
    throw ConfigError("[{}] does not exist; expected a model folder", folder.string());
  if (!std::filesystem::is_directory(folder, error))
    throw ConfigError("[{}] is a file; expected a model folder", folder.string());
}

std::string with_nearest(const std::string& name, std::span<const std::string> candidates) {
  const std::string nearest = nearest_name(name, candidates);
  return nearest.empty() ? name : name + "' (nearest: '" + nearest + "')";
}

}  // namespace

void check_tensors(const TensorSource& source, std::span<const TensorSpec> expected,
                   const LoadOptions& options) {
  std::vector<std::string> missing, unexpected, wrong;
  std::set<std::string, std::less<>> wanted;
  std::vector<std::string> wanted_names;
  for (const auto& view : expected) {
    wanted.insert(view.name);
    wanted_names.push_back(view.name);
    const auto found = source.tensors.find(view.name);
    if (found == source.tensors.end()) {
      missing.push_back(view.name);
      continue;
    }
    const TensorInfo& tensor = *found->second.tensor;
    if (!(tensor.shape == view.shape))
      wrong.push_back(fmt::format("{}' is {}, expected {}", view.name, tensor.shape.str(), view.shape.str()));
    else if (!tensor.dtype || !is_convertible(*tensor.dtype, view.dtype))
      wrong.push_back(fmt::format("{}' is {}, which cannot be read as {}", view.name, tensor.dtype_name,
                                  name_of(view.dtype)));
  }
  for (const auto& [name, entry] : source.tensors) {
    const auto ignored = [&name = name](const std::string& pattern) { return matches(name, pattern); };
    if (!wanted.contains(name) && std::none_of(options.ignore.begin(), options.ignore.end(), ignored))
      unexpected.push_back(name);
  }
  if (missing.empty() && unexpected.empty() && wrong.empty()) return;

  const auto available = names_of(source);
  std::string text;
  const auto part = [&](std::string_view title, const std::vector<std::string>& names,
                        std::span<const std::string> candidates) {
    if (names.empty()) return;
    text += text.empty() ? "" : "; ";
    text += fmt::format("{} {}: ", names.size(), title);
    for (size_t i = 0; i < std::min<size_t>(names.size(), 8); ++i) {
      const std::string shown = candidates.empty() ? names[i] : with_nearest(names[i], candidates);
      text +=
          fmt::format("{}'{}{}", i > 0 ? ", " : "", shown, shown.find('\'') == std::string::npos ? "'" : "");
    }
    if (names.size() > 8) text += fmt::format(" and {} more", names.size() - 8);
  };
  part("missing", missing, available);
  part("unexpected", unexpected, wanted_names);
  part("of the wrong shape or type", wrong, {});
  throw DataError("[{}] does not contain the tensors of this model: {}; check that config.json belongs to it",
                  source.where, text);
}

namespace {

TensorSource open_shards(const Path& folder, const Path& index_path, std::string_view extension) {
  TensorSource source;
  source.where = folder.string();
  const ShardIndex index = parse_shard_index(read_file(index_path), index_path.string(), extension);
  std::error_code error;
  for (const auto& name : index.files) {
    if (!std::filesystem::exists(folder / name, error))
      throw DataError("[{}] names the shard {}, which is missing; download the folder again",
                      index_path.string(), name);
    add_file(source, folder / name);
  }
  check_against_index(source, index);
  return source;
}

}  // namespace

std::unique_ptr<TensorFile> open_tensor_container(const Path& path) {
  if (path.extension() == ".safetensors") return std::make_unique<SafetensorsFile>(path);
  return std::make_unique<interop::TorchFile>(path);
}

TensorSource open_tensor_file(const Path& file) {
  TensorSource source;
  source.where = file.string();
  add_file(source, file);
  return source;
}

TensorSource open_tensors(const Path& folder, const std::string& stem) {
  check_folder(folder);
  std::error_code error;
  for (const auto& [file, extension] :
       {std::pair{stem, ".safetensors"}, std::pair{std::string("pytorch_model"), ".bin"}}) {
    const Path single = folder / (file + extension), index_path = single.string() + ".index.json";
    if (std::filesystem::exists(single, error)) {
      TensorSource source = open_tensor_file(single);
      source.where = folder.string();
      return source;
    }
    if (std::filesystem::exists(index_path, error)) return open_shards(folder, index_path, extension);
  }
  throw DataError("[{}] has neither {}.safetensors nor pytorch_model.bin, nor an index of their shards",
                  folder.string(), stem);
}

std::string read_config_json(const Path& folder) {
  check_folder(folder);
  std::error_code error;
  if (!std::filesystem::exists(folder / "config.json", error))
    throw DataError("[{}] has no config.json; expected a Hugging Face model folder", folder.string());
  return with_float_objects(read_file(folder / "config.json"));
}

std::vector<std::string> known_buffers() {
  return {
      "*.attn.bias",          "*.attn.masked_bias",      "*.attention.bias",        "*.attention.masked_bias",
      "*rotary_emb.inv_freq", "*.rotary_emb.cos_cached", "*.rotary_emb.sin_cached", "*.position_ids"};
}

void load_tensors(const TensorSource& source, std::span<const MutableTensorView> views,
                  const LoadOptions& options) {
  std::vector<TensorSpec> expected;
  for (const auto& view : views) expected.push_back({view.name, view.memory_dtype, view.stored_shape()});
  check_tensors(source, expected, options);
  // Largest first, to balance the threads.
  std::vector<size_t> order(views.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return views[a].shape.elements() > views[b].shape.elements(); });
  parallel_for(static_cast<int64_t>(order.size()), [&](int64_t i) {
    const MutableTensorView& view = views[order[static_cast<size_t>(i)]];
    const auto& entry = source.tensors.find(view.name)->second;
    read_tensor(
        *entry.file, *entry.tensor, view,
        {.check_finite = options.check_finite,
         .checksums =
             options.checksums != nullptr ? &options.checksums->of(*entry.file, *entry.tensor) : nullptr,
         .rank = options.rank});
  });
}

void load_hf_tensors(const Path& folder, std::span<const MutableTensorView> views,
                     const LoadOptions& options) {
  load_tensors(open_tensors(folder), views, options);
}

}  // namespace strata::checkpoint
