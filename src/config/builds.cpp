#include "config/builds.h"

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace strata::config {
namespace {

constexpr const char* kSourcesFile = "sources.toml";  // written by data/build/finish.h

ConfigValue* child(ConfigValue* value, const char* key) {
  return value == nullptr ? nullptr : value->find(key);
}

std::string text_of(const ConfigValue& table, const char* key) {
  const ConfigValue* value = table.find(key);
  const auto* text = value ? value->get_if<std::string>() : nullptr;
  return text ? *text : "";
}

void place(ConfigValue& path, const Path& folder) {
  if (auto* text = std::get_if<std::string>(&path.data)) {
    *text = (folder / *text).lexically_normal().string();
  } else if (auto* items = std::get_if<ConfigValue::Array>(&path.data)) {
    for (ConfigValue& item : *items) place(item, folder);
  }
}

// Reads sources.toml and makes its paths relative to the current directory.
ConfigValue read_build(const Path& folder, const Origin& origin) {
  const Path path = folder / kSourcesFile;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    throw ConfigError(
        "[{}] data.build: found no {} in \"{}\", expected the folder of a finished `strata data build` whose "
        "recipe has output.tokens; run the build, or name its build.folder",
        to_string(origin), kSourcesFile, folder.string());
  }
  ConfigValue tree = read_toml(path);
  if (ConfigValue* tokenizer = child(tree.find("tokenizer"), "path")) place(*tokenizer, folder);
  if (ConfigValue* rows = child(tree.find("data"), "source")) {
    if (auto* items = std::get_if<ConfigValue::Array>(&rows->data)) {
      for (ConfigValue& row : *items)
        if (ConfigValue* files = row.find("path")) place(*files, folder);
    }
  }
  return tree;
}

// The folders in data.build; empty if it is neither a string nor a list of strings, which reading rejects.
std::optional<std::vector<ConfigValue>> folders_of(const ConfigValue& build) {
  std::vector<ConfigValue> folders;
  if (build.get_if<std::string>()) {
    folders.push_back(build);
  } else if (const auto* items = build.get_if<ConfigValue::Array>()) {
    folders = *items;
  }
  const bool texts = std::all_of(folders.begin(), folders.end(),
                                 [](const ConfigValue& folder) { return folder.get_if<std::string>(); });
  return texts && !folders.empty() ? std::optional(folders) : std::nullopt;
}

bool names_tokenizer(const ConfigValue& root) {
  const ConfigValue* tokenizer = root.find("tokenizer");
  return tokenizer != nullptr && (tokenizer->find("path") != nullptr || tokenizer->find("train") != nullptr);
}

}  // namespace

void lay_builds(ConfigValue& root) {
  ConfigValue* data = root.find("data");
  ConfigValue* build = child(data, "build");
  if (build == nullptr) return;
  const auto folders = folders_of(*build);
  ConfigValue* own = data->find("source");
  if (!folders || (own != nullptr && !own->is_array())) return;
  const Origin origin = build->origin;

  ConfigValue::Array rows;
  std::string tokenizer_path;
  for (const ConfigValue& folder : *folders) {
    ConfigValue tree = read_build(*folder.get_if<std::string>(), folder.origin);
    if (ConfigValue* built = child(tree.find("data"), "source")) {
      if (auto* items = std::get_if<ConfigValue::Array>(&built->data))
        rows.insert(rows.end(), items->begin(), items->end());
    }
    ConfigValue* tokenizer = tree.find("tokenizer");
    const std::string path = tokenizer ? text_of(*tokenizer, "path") : "";
    if (path.empty()) continue;
    if (!tokenizer_path.empty() && read_file(path) != read_file(tokenizer_path)) {
      throw ConfigError(
          "[{}] data.build: found builds of two tokenizers, {} and {}; build them with the same one",
          to_string(origin), tokenizer_path, path);
    }
    if (tokenizer_path.empty() && !names_tokenizer(root)) {
      ConfigValue under{.data = ConfigValue::Table{{"tokenizer", std::move(*tokenizer)}}, .origin = origin};
      merge(under, std::move(root));
      root = std::move(under);
    }
    tokenizer_path = path;
  }

  data = root.find("data");
  own = data->find("source");
  if (own != nullptr) {
    for (ConfigValue& row : std::get<ConfigValue::Array>(own->data)) {
      const std::string name = text_of(row, "name");
      const auto same = std::find_if(rows.begin(), rows.end(), [&](const ConfigValue& built) {
        return !name.empty() && text_of(built, "name") == name;
      });
      if (same == rows.end())
        rows.push_back(std::move(row));
      else
        merge(*same, std::move(row));
    }
    own->data = std::move(rows);
  } else {
    std::get<ConfigValue::Table>(data->data)
        .push_back({"source", {.data = std::move(rows), .origin = origin}});
  }
  std::erase_if(std::get<ConfigValue::Table>(data->data),
                [](const ConfigEntry& entry) { return entry.key == "build"; });
}

}  // namespace strata::config
