#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "hardware/device_spec.h"

namespace strata::hardware {
namespace {

using Json = nlohmann::ordered_json;

// One list of fields for both directions.
template <typename Spec, typename Visit>
void visit_fields(Spec& spec, Visit visit) {
  visit("name", spec.name);
  visit("kind", spec.kind);
  visit("library", spec.library);
  visit("library_bf16", spec.library_bf16);
  visit("architecture", spec.architecture);
  visit("multiprocessors", spec.multiprocessors);
  visit("cores", spec.cores);
  visit("threads", spec.threads);
  visit("l1_bytes", spec.l1_bytes);
  visit("l2_bytes", spec.l2_bytes);
  visit("l3_bytes", spec.l3_bytes);
  visit("kept_bytes", spec.kept_bytes);
  visit("memory_bytes", spec.memory_bytes);
  visit("memory_bytes_per_s", spec.memory_bytes_per_s);
  visit("cache_bytes_per_s", spec.cache_bytes_per_s);
  visit("launch_seconds", spec.launch_seconds);
  visit("power_watts", spec.power_watts);
  visit("exchange_bytes_per_s", spec.exchange_bytes_per_s);
  visit("exchange_cold_bytes_per_s", spec.exchange_cold_bytes_per_s);
  visit("exchange_seconds", spec.exchange_seconds);
  visit("source", spec.source);
  visit("date", spec.date);
}
template <typename Isa, typename Visit>
void visit_isa(Isa& isa, Visit visit) {
  visit("avx2", isa.avx2);
  visit("avx512", isa.avx512);
  visit("avx512_bf16", isa.avx512_bf16);
  visit("amx", isa.amx);
  visit("neon", isa.neon);
}
template <typename R, typename Visit>
void visit_rates(R& rates, Visit visit) {
  for (const Precision precision : kAllPrecisions) visit(to_string(precision).data(), rates[precision]);
}
template <typename Rate, typename Visit>
void visit_family(Rate& rate, Visit visit) {
  visit("family", rate.family);
  visit("dtype", rate.dtype);
  visit("flops_per_s", rate.flops_per_s);
  visit("bytes_per_s", rate.bytes_per_s);
  visit("cold", rate.cold);
  visit("adds", rate.adds);
}

[[noreturn]] void reject(const std::string& field, const Json& found, std::string_view expected) {
  throw DataError("[device description] {}: found {}, expected {}", field, found.dump(), expected);
}

void read_value(const Json& json, const std::string& field, std::string& out) {
  if (!json.is_string()) reject(field, json, "text");
  out = json.get<std::string>();
}
void read_value(const Json& json, const std::string& field, bool& out) {
  if (!json.is_boolean()) reject(field, json, "true or false");
  out = json.get<bool>();
}
void read_value(const Json& json, const std::string& field, double& out) {
  if (!json.is_number() || !(json.get<double>() >= 0)) reject(field, json, "a number, at least 0");
  out = json.get<double>();
}
template <typename Integer>
requires std::is_integral_v<Integer>
void read_value(const Json& json, const std::string& field, Integer& out) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<Integer>::max());
  const bool fits = json.is_number_unsigned() && json.get<uint64_t>() <= kMost;
  if (!fits) reject(field, json, "a whole number, at least 0");
  out = static_cast<Integer>(json.get<uint64_t>());
}

// Reads the fields that an object has into those of a visitor.
auto reader_of(const Json& object, const std::string& prefix) {
  if (!object.is_object()) reject(prefix.empty() ? "all of it" : prefix, object, "an object");
  return [&object, prefix](const char* key, auto& value) {
    if (const auto it = object.find(key); it != object.end())
      read_value(*it, prefix.empty() ? key : fmt::format("{}.{}", prefix, key), value);
  };
}

// Everything that the measured rates depend on.
std::string identity(const DeviceSpec& spec) {
  constexpr int kMeaning = 5;  // of the rates; another one makes what earlier versions measured useless
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}", spec.kind, spec.name, spec.isa.str(), spec.cores,
                     spec.threads, spec.library, spec.library_bf16, kMeaning);
}

Path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache) return Path(cache) / "strata";
  const char* home = std::getenv("HOME");
  if (home && *home && access(home, W_OK) == 0) return Path(home) / ".cache" / "strata";
  std::error_code error;
  const Path temporary = std::filesystem::temp_directory_path(error);
  // With the user's number: the folder for temporary files is everybody's.
  return (error ? Path("/tmp") : temporary) / fmt::format("strata-{}", getuid());
}

}  // namespace

std::string to_json(const DeviceSpec& spec) {
  const auto writer_to = [](Json& json) {
    return [&json](const char* key, const auto& value) { json[key] = value; };
  };
  Json json;
  visit_fields(spec, writer_to(json));
  visit_isa(spec.isa, writer_to(json["isa"]));
  visit_rates(spec.gemm_flops, writer_to(json["gemm_flops"]));
  visit_rates(spec.peak_flops, writer_to(json["peak_flops"]));
  json["rates"] = Json::array();
  for (const FamilyRate& rate : spec.rates) visit_family(rate, writer_to(json["rates"].emplace_back()));
  return dump_json(json, 2) + "\n";
}

DeviceSpec device_spec_from_json(std::string_view text) {
  Json json;
  try {
    json = parse_json<Json>(text);
  } catch (const Json::exception& error) {
    throw DataError("[device description] {}; expected JSON as strata doctor --json writes it", error.what());
  }
  DeviceSpec spec;
  visit_fields(spec, reader_of(json, ""));
  if (spec.name.empty()) throw DataError("[device description] name: found none, expected text");
  const auto part = [&](const char* key, const auto& visit) {
    if (const auto it = json.find(key); it != json.end()) visit(*it);
  };
  part("isa", [&](const Json& isa) { visit_isa(spec.isa, reader_of(isa, "isa")); });
  part("gemm_flops",
       [&](const Json& rates) { visit_rates(spec.gemm_flops, reader_of(rates, "gemm_flops")); });
  part("peak_flops",
       [&](const Json& rates) { visit_rates(spec.peak_flops, reader_of(rates, "peak_flops")); });
  part("rates", [&](const Json& rates) {
    if (!rates.is_array()) reject("rates", rates, "a list");
    for (size_t i = 0; i < rates.size(); ++i)
      visit_family(spec.rates.emplace_back(), reader_of(rates[i], fmt::format("rates[{}]", i)));
  });
  return spec;
}

Path device_cache_path(const DeviceSpec& spec) {
  return cache_folder() / fmt::format("device-{}.json", to_hex(hash64(identity(spec))));
}

bool load_cached_device(DeviceSpec& spec) {
  const Path path = device_cache_path(spec);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  try {
    DeviceSpec cached = device_spec_from_json(read_file(path));
    if (identity(cached) != identity(spec)) return false;
    spec = std::move(cached);
    return true;
  } catch (const Error& problem) {
    log_warning("the measured rates in {} are unusable and will be measured again: {}", path.string(),
                problem.what());
    return false;
  }
}

bool save_cached_device(FileSystem& files, const DeviceSpec& spec) {
  const Path path = device_cache_path(spec);
  try {
    files.create_directories(path.parent_path());
    write_file_atomically(files, path, to_json(spec));
    return true;
  } catch (const Error& error) {
    log_warning("the measured rates of this machine were not saved: {}", error.what());
    return false;
  }
}

}  // namespace strata::hardware
