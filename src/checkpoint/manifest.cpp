#include "checkpoint/manifest.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"

namespace strata::checkpoint {
namespace {

using Json = nlohmann::json;

// The checksum of a manifest: over its compact dump, keys sorted, without the field "checksum".
std::string checksum_of(Json manifest) {
  manifest.erase("checksum");
  return to_hex(hash64(dump_json(manifest)));
}

uint64_t from_hex(const std::string& text) {
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw DataError("'{}' is not a checksum of 16 hexadecimal digits", text);
  return std::stoull(text, nullptr, 16);
}

// JSON has no NaN: null stands for any number that is not finite.
double number_or_nan(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

// Concatenates the checksums of a tensor's chunks.
std::string list_to_hex(const std::vector<uint64_t>& checksums) {
  std::string text;
  for (const uint64_t checksum : checksums) text += to_hex(checksum);
  return text;
}

std::vector<uint64_t> list_from_hex(const std::string& text) {
  std::vector<uint64_t> checksums;
  for (size_t at = 0; at < text.size(); at += 16) checksums.push_back(from_hex(text.substr(at, 16)));
  return checksums;
}

Json to_json(std::span<const StoredFile> files) {
  Json json = Json::object();
  for (const auto& file : files) {
    Json& entry = json[file.name];
    STRATA_CHECK(entry.is_null(), "two files are named '{}'", file.name);
    entry["bytes"] = file.bytes;
    entry["checksum"] = to_hex(file.checksum);
    if (file.tensors.empty()) continue;
    entry["chunk_bytes"] = file.chunk_bytes;
    for (const auto& tensor : file.tensors) entry["tensors"][tensor.name] = list_to_hex(tensor.checksums);
  }
  return json;
}

std::vector<StoredFile> files_from_json(const Json& json) {
  std::vector<StoredFile> files;
  for (const auto& [name, entry] : json.items()) {
    if (!is_plain_file_name(name)) throw DataError("'{}' is not a plain file name", name);
    StoredFile file{
        name, entry.at("bytes").get<uint64_t>(), from_hex(entry.at("checksum").get<std::string>()), {}};
    if (entry.contains("chunk_bytes")) file.chunk_bytes = entry["chunk_bytes"].get<uint64_t>();
    if (file.chunk_bytes % 64 != 0)
      throw DataError("'{}' has chunks of {} bytes, expected a multiple of 64", name, file.chunk_bytes);
    if (entry.contains("tensors")) {
      for (const auto& [tensor, checksums] : entry["tensors"].items())
        file.tensors.push_back({tensor, list_from_hex(checksums.get<std::string>())});
    }
    files.push_back(std::move(file));
  }
  return files;
}

Json to_json(const RetentionPolicy& policy) {
  return {{"keep_last", policy.keep_last},
          {"keep_every", policy.keep_every},
          {"keep_best", policy.keep_best},
          {"best_metric", policy.best_metric}};
}

RetentionPolicy retention_from_json(const Json& json) {
  return {.keep_last = json.at("keep_last").get<int64_t>(),
          .keep_every = json.at("keep_every").get<int64_t>(),
          .keep_best = json.at("keep_best").get<int64_t>(),
          .best_metric = json.at("best_metric").get<std::string>()};
}

Manifest from_json(const Json& json) {
  Manifest manifest;
  manifest.step = json.at("step").get<int64_t>();
  manifest.program = json.at("program").get<std::string>();
  manifest.created = json.at("created").get<std::string>();
  const Json& health = json.at("health");
  if (health.contains("loss")) manifest.health.loss = number_or_nan(health["loss"]);
  manifest.health.grad_norm = number_or_nan(health.at("grad_norm"));
  manifest.health.finite = health.at("finite").get<bool>();
  for (const auto& [name, value] : health.at("metrics").items())
    manifest.health.metrics[name] = number_or_nan(value);
  if (json.contains("retention")) manifest.retention = retention_from_json(json["retention"]);
  manifest.files = files_from_json(json.at("files"));
  return manifest;
}

// Formats a document that includes its own checksum.
std::string sealed(Json json) {
  // Computed over the parsed text, as a reader does: numbers that are not finite have become null.
  json["checksum"] = checksum_of(parse_json<Json>(dump_json(json)));
  return dump_json(json, 1) + "\n";
}

// Checks the checksum of a sealed text and returns read(its JSON). `what` names the document in messages.
template <typename Read>
auto unsealed(std::string_view text, const std::string& where, const char* what, Read read) {
  try {
    const Json json = parse_json<Json>(text);
    if (!json.is_object() || !json.contains("checksum")) throw DataError("it is not a {}", what);
    if (json["checksum"] != checksum_of(json)) throw DataError("it does not match its own checksum");
    if (json.at("min_reader").template get<int>() > kUnderstoodFormat)
      throw ConfigError(
          "[{}] was written by a newer version ({}) in format {}: this one reads up to {}; use the newer one",
          where, json.value("program", "unknown"), json["min_reader"].template get<int>(), kUnderstoodFormat);
    return read(json);
  } catch (const Json::exception& error) {
    throw DataError("[{}] is damaged: {}", where, error.what());
  } catch (const DataError& error) {
    throw DataError("[{}] is damaged: {}", where, error.what());
  }
}

}  // namespace

bool Health::good() const {
  return finite && std::isfinite(loss.value_or(0)) && std::isfinite(grad_norm);
}

uint64_t Manifest::bytes() const {
  uint64_t total = 0;
  for (const auto& file : files) total += file.bytes;
  return total;
}

const StoredFile* Manifest::find(std::string_view name) const {
  for (const auto& file : files) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

std::string format_manifest(const Manifest& manifest) {
  Json json;
  json["format_version"] = kFormatVersion;
  json["min_reader"] = kFormatVersion;
  json["step"] = manifest.step;
  json["program"] = manifest.program;
  json["created"] = manifest.created;
  json["health"] = {{"grad_norm", manifest.health.grad_norm},
                    {"finite", manifest.health.finite},
                    {"metrics", manifest.health.metrics}};
  if (manifest.health.loss) json["health"]["loss"] = *manifest.health.loss;
  if (manifest.retention) json["retention"] = to_json(*manifest.retention);
  json["files"] = to_json(manifest.files);
  return sealed(std::move(json));
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  return unsealed(text, where, "manifest of a checkpoint", from_json);
}

std::string format_checksums(std::span<const StoredFile> files) {
  Json json;
  json["format_version"] = kFormatVersion;
  json["min_reader"] = kFormatVersion;
  json["files"] = to_json(files);
  return sealed(std::move(json));
}

std::vector<StoredFile> parse_checksums(std::string_view text, const std::string& where) {
  return unsealed(text, where, "list of checksums",
                  [](const Json& json) { return files_from_json(json.at("files")); });
}

std::optional<std::vector<StoredFile>> stored_files(const Path& folder) {
  std::error_code error;
  const Path manifest = folder / "manifest.json", checksums = folder / kChecksumsFile;
  if (std::filesystem::exists(manifest, error))
    return parse_manifest(read_file(manifest), manifest.string()).files;
  if (std::filesystem::exists(checksums, error))
    return parse_checksums(read_file(checksums), checksums.string());
  return std::nullopt;
}

Manifest read_manifest(const Path& checkpoint) {
  const Path path = checkpoint / "manifest.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    throw DataError("[{}] has no manifest.json: the save was never finished", checkpoint.string());
  Manifest manifest = parse_manifest(read_file(path), path.string());
  for (const auto& file : manifest.files) {
    const auto size = std::filesystem::file_size(checkpoint / file.name, error);
    if (error) throw DataError("[{}] {} is missing", checkpoint.string(), file.name);
    if (size != file.bytes)
      throw DataError("[{}] {} has {} bytes, expected {}", checkpoint.string(), file.name, size, file.bytes);
  }
  return manifest;
}

}  // namespace strata::checkpoint
