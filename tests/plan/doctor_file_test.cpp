#include "plan/doctor_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "plan/catalogue.h"

namespace strata::planning {
namespace {

using hardware::DeviceSpec;
using hardware::Precision;

DeviceSpec device(int threads) {
  DeviceSpec out;
  out.name = "a processor";
  out.threads = threads;
  out.memory_bytes = int64_t{8} << 30;
  out.memory_bytes_per_s = 20e9;
  out.gemm_flops[Precision::kFp32] = 1e11;
  out.exchange_bytes_per_s = 5e9;
  out.exchange_seconds = 1e-5;
  out.rates = {{.family = "linear", .dtype = "f32", .flops_per_s = 9e10, .bytes_per_s = 1e10}};
  out.source = "measured";
  out.date = "2026-11-27";
  return out;
}

std::string doctor_json(const std::vector<DeviceSpec>& by_ranks) {
  nlohmann::ordered_json out = {
      {"version", "1"}, {"device", parse_json<nlohmann::ordered_json>(hardware::to_json(by_ranks.front()))}};
  out["cluster"] = doctor_cluster(by_ranks, {{"all-reduce", 1 << 20, 3e-4}});
  return dump_json(out);
}

std::string refusal(const std::string& json) {
  try {
    cluster_of_doctor(json, "here.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(DoctorFile, IsTheMeasuredHost) {
  const ClusterSpec cluster = cluster_of_doctor(doctor_json({device(4), device(2)}), "here.json");
  EXPECT_EQ(cluster.measured, (std::vector<DeviceSpec>{device(4), device(2)}));
  EXPECT_EQ(cluster.devices_per_host, 2);
  EXPECT_EQ(cluster.links.at(0).bandwidth.value, 5e9);
}

TEST(DoctorFile, HasTheTimesThatLinksPredict) {
  const auto json = doctor_cluster({device(2)}, {{"all-reduce", 10'000'000, 3e-3}});
  // Each of two ranks sends the whole buffer once: half to be summed, half of the sums.
  EXPECT_NEAR(json["collectives"][0]["predicted_s"].get<double>(), 1e-5 + 1e7 / 5e9, 1e-9);
  EXPECT_EQ(json["collectives"][0]["seconds"], 3e-3);
}

TEST(DoctorFile, IsAClusterWhoseLinksCanBeSet) {
  const Path file = std::filesystem::temp_directory_path() / "strata_doctor_file.json";
  write_file_atomically(posix_file_system(), file, doctor_json({device(4), device(2)}));
  const std::string set[] = {"cluster.link.memory.bandwidth=\"1 GB/s\""};
  const ClusterSpec cluster = resolve_cluster(file.string(), set);
  EXPECT_EQ(cluster.links.at(0).bandwidth.value, 1e9);
  EXPECT_EQ(cluster.measured.size(), 2u);
  const std::string chip[] = {"chip.memory=\"1 GB\""};
  EXPECT_THROW(resolve_cluster(file.string(), chip), ConfigError);
  std::filesystem::remove(file);
}

TEST(DoctorFile, ErrorsNameFileAndField) {
  EXPECT_NE(refusal("{").find("here.json"), std::string::npos);
  EXPECT_NE(refusal("[1]").find("strata doctor --json"), std::string::npos);
  EXPECT_NE(refusal("{\"device\": {\"name\": 3}}").find("name: found 3"), std::string::npos);
  EXPECT_NE(refusal("{\"device\": {\"name\": \"x\"}}").find("without --quick"), std::string::npos);
}

}  // namespace
}  // namespace strata::planning
