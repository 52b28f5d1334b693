#include "checkpoint/manifest.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/safetensors.h"

namespace strata::checkpoint {
namespace {

using Json = nlohmann::json;

// The checksum of a manifest: over its compact dump, keys sorted, without the field "checksum".
std::string checksum_of(Json manifest) {
  manifest.erase("checksum");
  return to_hex(hash64(manifest.dump()));
}

uint64_t from_hex(const std::string& text) {
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw DataError("'{}' is no checksum of 16 hexadecimal digits", text);
  return std::stoull(text, nullptr, 16);
}

// JSON has no NaN: null stands for any number that is not finite.
double number_or_nan(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

Manifest from_json(const Json& json) {
  Manifest manifest;
  manifest.step = json.at("step").get<int64_t>();
  manifest.program = json.at("program").get<std::string>();
  manifest.created = json.at("created").get<std::string>();
  const Json& health = json.at("health");
  manifest.health.loss = number_or_nan(health.at("loss"));
  manifest.health.grad_norm = number_or_nan(health.at("grad_norm"));
  manifest.health.finite = health.at("finite").get<bool>();
  for (const auto& [name, value] : health.at("metrics").items())
    manifest.health.metrics[name] = number_or_nan(value);
  for (const auto& [name, entry] : json.at("files").items()) {
    if (!is_plain_file_name(name)) throw DataError("'{}' is no plain file name", name);
    StoredFile file{
        name, entry.at("bytes").get<uint64_t>(), from_hex(entry.at("checksum").get<std::string>()), {}};
    if (entry.contains("tensors")) {
      for (const auto& [tensor, checksum] : entry["tensors"].items())
        file.tensors.push_back({tensor, from_hex(checksum.get<std::string>())});
    }
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

}  // namespace

bool Health::good() const {
  return finite && std::isfinite(loss) && std::isfinite(grad_norm);
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
  json["health"] = {{"loss", manifest.health.loss},
                    {"grad_norm", manifest.health.grad_norm},
                    {"finite", manifest.health.finite},
                    {"metrics", manifest.health.metrics}};
  json["files"] = Json::object();
  for (const auto& file : manifest.files) {
    Json& entry = json["files"][file.name];
    STRATA_CHECK(entry.is_null(), "two files are called '{}'", file.name);
    entry["bytes"] = file.bytes;
    entry["checksum"] = to_hex(file.checksum);
    for (const auto& tensor : file.tensors) entry["tensors"][tensor.name] = to_hex(tensor.checksum);
  }
  // Over what a reader will have: a number that is not finite is null by then.
  json["checksum"] = checksum_of(Json::parse(json.dump()));
  return json.dump(1) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  try {
    const Json json = Json::parse(text);
    if (!json.is_object() || !json.contains("checksum")) throw DataError("no manifest of a checkpoint");
    if (json["checksum"] != checksum_of(json)) throw DataError("its own checksum does not match");
    if (json.at("min_reader").get<int>() > kUnderstoodFormat)
      throw ConfigError(
          "[{}] was written by a newer version ({}) in format {}; this one reads up to {}: use the newer one",
          where, json.value("program", "unknown"), json["min_reader"].get<int>(), kUnderstoodFormat);
    return from_json(json);
  } catch (const Json::exception& error) {
    throw DataError("[{}] damaged: {}", where, error.what());
  } catch (const DataError& error) {
    throw DataError("[{}] damaged: {}", where, error.what());
  }
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
      throw DataError("[{}] {} has {} bytes, {} were written", checkpoint.string(), file.name, size,
                      file.bytes);
  }
  return manifest;
}

}  // namespace strata::checkpoint
