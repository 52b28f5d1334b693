#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"

namespace strata::checkpoint {

bool is_plain_file_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 255 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), allowed);
}

ShardIndex parse_shard_index(std::string_view text, const std::string& where, std::string_view extension) {
  using nlohmann::json;
  // Detects duplicate keys during parsing, because the tree keeps only the last of them.
  std::vector<std::set<std::string>> keys;
  std::string twice;
  json index;
  try {
    index = json::parse(text, [&](int depth, json::parse_event_t event, json& value) {
      if (depth > 3) throw DataError("[{}] nests deeper than a shard index", where);
      if (event == json::parse_event_t::object_start) keys.emplace_back();
      if (event == json::parse_event_t::object_end) keys.pop_back();
      if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
        twice = value.get<std::string>();
      return true;
    });
  } catch (const json::exception& error) {
    throw DataError("[{}] is not valid JSON: {}", where, error.what());
  }
  if (!twice.empty()) throw DataError("[{}] has the key '{}' twice", where, twice);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    throw DataError("[{}] has no \"weight_map\" object; expected an index of shards", where);
  ShardIndex result;
  std::set<std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string()) throw DataError("[{}] the file of '{}' is not a string", where, tensor);
    const auto name = file.get<std::string>();
    if (!is_plain_file_name(name) || !name.ends_with(extension))
      throw DataError("[{}] '{}' is in '{}', which is not a plain name of a {} file", where, tensor, name,
                      extension);
    files.insert(name);
    result.file_of.emplace(tensor, name);
  }
  if (files.empty()) throw DataError("[{}] names no tensors", where);
  result.files.assign(files.begin(), files.end());
  return result;
}

std::string format_shard_index(const std::map<std::string, std::string>& file_of, uint64_t total_bytes) {
  nlohmann::json index;
  index["metadata"]["total_size"] = total_bytes;
  index["weight_map"] = file_of;
  return dump_json(index, 2) + "\n";
}

}  // namespace strata::checkpoint
