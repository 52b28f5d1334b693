#include "plan/doctor_file.h"

#include <fmt/format.h>

#include "base/error.h"

namespace strata::planning {
namespace {

using Json = nlohmann::ordered_json;

// As hardware/cluster_spec.h has it.
double predicted_seconds(const hardware::DeviceSpec& device, const MeasuredCollective& one) {
  using hardware::Exchange;
  const Exchange exchange = one.name == "all-reduce"   ? Exchange::kAllReduce
                            : one.name == "all-gather" ? Exchange::kGather
                                                       : Exchange::kReduceScatter;
  const hardware::Machine machine(device);
  return exchange_seconds(machine.links, exchange, {.ranks = 2}, static_cast<double>(one.bytes));
}

}  // namespace

Json doctor_cluster(const std::vector<hardware::DeviceSpec>& by_ranks,
                    const std::vector<MeasuredCollective>& collectives) {
  Json out = {{"by_ranks", Json::array()}, {"collectives", Json::array()}};
  for (const hardware::DeviceSpec& device : by_ranks)
    out["by_ranks"].push_back(parse_json<Json>(hardware::to_json(device)));
  for (const MeasuredCollective& one : collectives)
    out["collectives"].push_back({{"collective", one.name},
                                  {"bytes", one.bytes},
                                  {"seconds", one.seconds},
                                  {"predicted_s", predicted_seconds(by_ranks.back(), one)}});
  return out;
}

hardware::ClusterSpec cluster_of_doctor(std::string_view text, const std::string& file) {
  constexpr const char* kExpected = "expected the JSON of strata doctor --json";
  std::vector<hardware::DeviceSpec> measured;
  try {
    const Json json = parse_json<Json>(text);
    const auto read = [&](const Json& device) {
      measured.push_back(hardware::device_spec_from_json(device.dump()));
    };
    if (!json.is_object() || !json.contains("device"))
      throw ConfigError("[{}] found no \"device\", {}", file, kExpected);
    const bool shared = json.contains("cluster") && json["cluster"].is_object() &&
                        json["cluster"].contains("by_ranks") && json["cluster"]["by_ranks"].is_array();
    if (shared) {
      for (const Json& device : json["cluster"]["by_ranks"]) read(device);
    }
    if (measured.empty()) read(json["device"]);
  } catch (const Json::exception& error) {
    throw ConfigError("[{}] {}; {}", file, error.what(), kExpected);
  } catch (const DataError& error) {
    throw ConfigError("[{}] {}", file, error.what());
  }
  for (const hardware::DeviceSpec& device : measured) {
    if (device.memory_bytes_per_s <= 0 || device.gemm_flops[hardware::Precision::kFp32] <= 0)
      throw ConfigError(
          "[{}] the device was not measured: its rates are 0; expected strata doctor --json without --quick",
          file);
  }
  return hardware::cluster_of(std::move(measured));
}

}  // namespace strata::planning
