#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

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
  visit("cores", spec.cores);
  visit("threads", spec.threads);
  visit("l1_bytes", spec.l1_bytes);
  visit("l2_bytes", spec.l2_bytes);
  visit("l3_bytes", spec.l3_bytes);
  visit("kept_bytes", spec.kept_bytes);
  visit("memory_bytes", spec.memory_bytes);
  visit("gemm_flops_f32", spec.gemm_flops_f32);
  visit("gemm_flops_bf16", spec.gemm_flops_bf16);
  visit("memory_bytes_per_s", spec.memory_bytes_per_s);
  visit("cache_bytes_per_s", spec.cache_bytes_per_s);
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

// Everything that the measured rates depend on.
std::string identity(const DeviceSpec& spec) {
  constexpr int kMeaning = 2;  // of the rates; another one makes what earlier versions measured useless
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
  Json json;
  visit_fields(spec, [&](const char* key, const auto& value) { json[key] = value; });
  visit_isa(spec.isa, [&](const char* key, bool value) { json["isa"][key] = value; });
  json["rates"] = Json::array();
  for (const FamilyRate& rate : spec.rates) {
    json["rates"].push_back({{"family", rate.family},
                             {"dtype", rate.dtype},
                             {"flops_per_s", rate.flops_per_s},
                             {"bytes_per_s", rate.bytes_per_s},
                             {"cold", rate.cold}});
  }
  return dump_json(json, 2) + "\n";
}

DeviceSpec device_spec_from_json(std::string_view text) {
  try {
    const Json json = parse_json<Json>(text);
    DeviceSpec spec;
    visit_fields(spec, [&](const char* key, auto& value) { json.at(key).get_to(value); });
    visit_isa(spec.isa, [&](const char* key, bool& value) { json.at("isa").at(key).get_to(value); });
    for (const Json& rate : json.at("rates")) {
      spec.rates.push_back({rate.at("family"), rate.at("dtype"), rate.at("flops_per_s"),
                            rate.at("bytes_per_s"), rate.at("cold")});
    }
    return spec;
  } catch (const Json::exception& error) {
    throw DataError(
        "[device description] {}; expected the JSON that this version writes, remove or rewrite it",
        error.what());
  }
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
