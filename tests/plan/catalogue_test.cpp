#include "plan/catalogue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace strata::planning {
namespace {

using hardware::Exchange;

// The message of the ConfigError for a text; empty without an error.
std::string error_of(const std::string& text, std::vector<std::string> sets = {}) {
  try {
    parse_catalogue(text, "my.toml", sets);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

void expect_has(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
}

constexpr const char* kNames[] = {"v100",    "a100-40", "a100-80", "h100-sxm", "h100-pcie", "h100-96",
                                  "h200",    "h800",    "h20",     "b200",     "b300",      "gb200",
                                  "gb300",   "mi250x",  "mi300x",  "mi325x",   "mi355x",    "tpu-v4",
                                  "tpu-v5e", "tpu-v5p", "tpu-v6e", "rtx-4090"};

TEST(BuiltinCatalogue, HasEveryChipAndItsCluster) {
  const Catalogue catalogue = builtin_catalogue();
  EXPECT_EQ(catalogue.chips.size(), std::size(kNames));
  EXPECT_EQ(catalogue.clusters.size(), std::size(kNames));
  for (const char* name : kNames) {
    const ClusterSpec& cluster = find_cluster(catalogue, name);
    EXPECT_EQ(cluster.chip.name, name);
    EXPECT_EQ(cluster.links.back().size, LinkLevel::kAll);
    EXPECT_GE(cluster.links.size(), 2u);
  }
}

TEST(BuiltinCatalogue, EveryValueHasASource) {
  const Catalogue catalogue = builtin_catalogue();
  const auto check = [](const Figure& figure, const std::string& what) {
    EXPECT_TRUE(figure.known()) << what;
    // The source of a value without one is its position in the file.
    EXPECT_EQ(figure.source.find("data/planning"), std::string::npos) << what << " " << figure.source;
    EXPECT_NE(figure.evidence, Evidence::kUser) << what;
  };
  for (const ChipSpec& chip : catalogue.chips) {
    check(chip.memory, chip.name + " memory");
    check(chip.memory_bandwidth, chip.name + " memory_bandwidth");
    check(chip.memory_achievable, chip.name + " memory_achievable");
    check(chip.launch, chip.name + " launch");
    check(chip.peak_of(Precision::kBf16), chip.name + " bf16");
    for (const Precision precision : kAllPrecisions) {
      if (chip.peak[precision].known()) check(chip.peak[precision], chip.name + " peak");
      check(chip.achievable[precision], chip.name + " achievable");
      EXPECT_LE(chip.achievable[precision].value, 1) << chip.name;
    }
  }
  for (const ClusterSpec& cluster : catalogue.clusters) {
    for (const LinkLevel& link : cluster.links) {
      for (const Figure& figure : {link.bandwidth, link.achievable, link.startup, link.latency, link.ramp})
        check(figure, cluster.name + " " + link.name);
    }
    check(cluster.failures_per_node_day, cluster.name + " failures");
    check(cluster.pue, cluster.name + " pue");
  }
  for (const Price& price : catalogue.prices) {
    EXPECT_FALSE(price.source.empty()) << price.chip;
    EXPECT_FALSE(price.date.empty()) << price.chip;
    EXPECT_NE(price.evidence, Evidence::kUser) << price.chip;
  }
}

// The hardware table of the reference: TFLOP/s in bf16 (fp16 for the V100) and in fp8, GB, TB/s, GB/s within
// and between hosts.
TEST(BuiltinCatalogue, AgreesWithTheHardwareTable) {
  struct Row {
    const char* name;
    double bf16, fp8, memory, bandwidth, inside, between;
  };
  constexpr Row kRows[] = {
      {"a100-80", 312, 0, 80, 2.04, 300, 25},     {"a100-40", 312, 0, 40, 1.56, 300, 25},
      {"h100-sxm", 989, 1979, 80, 3.35, 450, 50}, {"h100-96", 989, 1979, 96, 2.4, 450, 50},
      {"h800", 989, 1979, 80, 3.35, 200, 50},     {"h200", 989, 1979, 141, 4.8, 450, 50},
      {"b200", 2250, 4500, 180, 7.7, 900, 50},    {"gb200", 2450, 4900, 186, 8, 900, 50},
      {"b300", 2250, 4500, 270, 7.7, 900, 100},   {"gb300", 2450, 4900, 279, 8, 900, 100},
      {"mi250x", 383, 0, 128, 3.2, 400, 25},      {"mi300x", 1307, 2615, 192, 5.3, 448, 50},
      {"mi325x", 1307, 2615, 256, 6.0, 448, 50},  {"mi355x", 2516, 5033, 288, 8, 537.6, 50},
      {"tpu-v5e", 197, 0, 16, 0.82, 200, 3.125},  {"tpu-v5p", 459, 459, 95, 2.765, 600, 6.25}};
  const Catalogue catalogue = builtin_catalogue();
  for (const Row& row : kRows) {
    const ClusterSpec& cluster = find_cluster(catalogue, row.name);
    const ChipSpec& chip = cluster.chip;
    EXPECT_NEAR(chip.peak_of(Precision::kBf16).value, row.bf16 * 1e12, 1) << row.name;
    EXPECT_NEAR(chip.peak_of(Precision::kFp8).value, row.fp8 * 1e12, 1) << row.name;
    EXPECT_NEAR(chip.memory.value, row.memory * 1e9, 1) << row.name;
    EXPECT_NEAR(chip.memory_bandwidth.value, row.bandwidth * 1e12, 2e9) << row.name;
    EXPECT_NEAR(cluster.links.front().bandwidth.value, row.inside * 1e9, 1) << row.name;
    EXPECT_NEAR(cluster.links.back().bandwidth.value, row.between * 1e9, 1) << row.name;
  }
  EXPECT_EQ(find_chip(catalogue, "v100").peak_of(Precision::kFp16).value, 125e12);
  EXPECT_EQ(find_chip(catalogue, "v100").peak_of(Precision::kBf16).value, 0) << "no bf16";
  EXPECT_EQ(find_chip(catalogue, "gb300").peak_of(Precision::kFp4).value, 14.7e15);
  EXPECT_EQ(find_chip(catalogue, "b300").peak_of(Precision::kFp4).value, 13.5e15);
  EXPECT_EQ(find_cluster(catalogue, "gb200").links.front().size, 72);
  EXPECT_EQ(find_chip(catalogue, "a100-40").memory_bandwidth.evidence, Evidence::kMemory);
  EXPECT_EQ(find_chip(catalogue, "tpu-v4").peak_of(Precision::kBf16).evidence, Evidence::kMemory);
  EXPECT_EQ(find_chip(catalogue, "h100-sxm").peak_of(Precision::kBf16).evidence, Evidence::kRead);
  EXPECT_FALSE(find_chip(catalogue, "tpu-v5e").power.known()) << "not published";
}

TEST(BuiltinCatalogue, PublishedPrices) {
  const Catalogue catalogue = builtin_catalogue();
  const auto price = [&](const char* chip, const char* provider) {
    for (const Price& found : prices_of(catalogue, chip)) {
      if (found.provider == provider) return found;
    }
    return Price{};
  };
  EXPECT_EQ(price("a100-80", "AWS").low, 3.97);
  EXPECT_EQ(price("h100-sxm", "Lambda").high, 3.29);
  EXPECT_EQ(price("h100-sxm", "market").high, 5.0);
  EXPECT_EQ(price("h800", "DeepSeek").low, 2.0);
  EXPECT_EQ(prices_of(catalogue, "b200", Terms::kSpot).at(0).low, 2.25);
  EXPECT_EQ(prices_of(catalogue, "h100-sxm").front().provider, "market") << "cheapest first";
}

TEST(BuiltinCatalogue, FindsNamesOfPublishedTables) {
  const Catalogue catalogue = builtin_catalogue();
  EXPECT_EQ(find_chip(catalogue, "H100-80GB-SXM").name, "h100-sxm");
  EXPECT_EQ(find_chip(catalogue, "H100-96GB-HBM2e").name, "h100-96");
  EXPECT_EQ(find_chip(catalogue, "tpu V5p").name, "tpu-v5p");
  try {
    find_chip(catalogue, "h100-sx");
    FAIL();
  } catch (const ConfigError& error) {
    expect_has(error.what(), {"h100-sx", "did you mean \"h100-sxm\"?"});
  }
  EXPECT_THROW(find_cluster(catalogue, "gtx-1080"), ConfigError);
}

double seconds_of(const LinkLevel& level, Exchange exchange, int64_t devices, double bytes) {
  return exchange_seconds({&level, 1}, exchange, {.ranks = devices}, bytes);
}

// NCCL all-reduce on 8 H100, measured by NVIDIA (dgxc NCCL table), in µs by bytes. The largest error is
// 9.9 %.
TEST(Links, CollectiveTimeReproducesTheMeasuredTable) {
  constexpr std::pair<double, double> kMeasured[] = {
      {0x1p10, 17},  {0x1p17, 20},   {0x1p20, 27},   {0x1p22, 54},    {0x1p24, 124},
      {0x1p26, 325}, {0x1p28, 1112}, {0x1p30, 4029}, {0x1p34, 62648},
  };
  const LinkLevel nvlink = find_cluster(builtin_catalogue(), "h100-sxm").links.front();
  double sum = 0.0;
  for (const auto& [bytes, micros] : kMeasured) {
    const double error = seconds_of(nvlink, Exchange::kAllReduce, 8, bytes) * 1e6 / micros - 1;
    EXPECT_LE(std::abs(error), 0.10) << bytes;
    sum += std::abs(error);
  }
  EXPECT_LE(sum / std::size(kMeasured), 0.05);
  EXPECT_EQ(seconds_of(nvlink, Exchange::kAllReduce, 1, 1e9), 0.0);
}

TEST(Links, DevicesUseOnlyTheirOwnLinksOfAMesh) {
  const LinkLevel xgmi = find_cluster(builtin_catalogue(), "mi300x").links.front();
  EXPECT_EQ(xgmi.topology, Topology::kMesh);
  // Two devices have one of seven links, for half of the bytes instead of seven eighths.
  const double bytes = 1e12;
  EXPECT_NEAR(seconds_of(xgmi, Exchange::kGather, 2, bytes) / seconds_of(xgmi, Exchange::kGather, 8, bytes),
              7.0 * (1 / 2.0) / (7 / 8.0), 0.01);
}

TEST(UserFile, OverridesABuiltinCluster) {
  const Catalogue catalogue = parse_catalogue(R"(
use = "h100-sxm"
[chip.h100-sxm]
memory = "94 GB"
[cluster.h100-sxm.link.infiniband]
bandwidth = { value = "25 GB/s", source = "our own test" , mark = "measured" }
)",
                                              "my.toml");
  const ClusterSpec& cluster = find_cluster(catalogue, catalogue.used_cluster);
  EXPECT_EQ(cluster.chip.memory.value, 94e9);
  EXPECT_EQ(cluster.chip.memory.source, "my.toml:4") << "not the source of the built-in value";
  EXPECT_EQ(cluster.chip.memory.evidence, Evidence::kUser);
  EXPECT_EQ(cluster.links.back().bandwidth.value, 25e9);
  EXPECT_EQ(cluster.links.back().bandwidth.source, "our own test");
  EXPECT_EQ(cluster.links.back().bandwidth.evidence, Evidence::kMeasured);
  EXPECT_EQ(cluster.chip.memory_bandwidth.value, 3.35e12) << "other values are unchanged";
  EXPECT_EQ(find_cluster(catalogue, "a100-80").chip.memory.value, 80e9);
}

TEST(UserFile, ExtendsAndSetsANewCluster) {
  const std::string text = R"(
[chip.big]
extends = "h200"
memory = 200e9
[cluster.lab]
extends = "h200"
chip = "big"
devices_per_host = 4
[cluster.lab.link.nvlink]
size = 4
[[price]]
chip = "big"
provider = "lab"
usd_per_hour = 0.5
date = "2026-11"
)";
  const std::vector<std::string> sets = {"cluster.link.nvlink.bandwidth=\"100 GB/s\"", "chip.power=650"};
  const Catalogue catalogue = parse_catalogue(text, "my.toml", sets);
  EXPECT_EQ(catalogue.used_cluster, "lab");
  const ClusterSpec& lab = find_cluster(catalogue, "lab");
  EXPECT_EQ(lab.chip.memory.value, 200e9);
  EXPECT_EQ(lab.chip.peak_of(Precision::kBf16).value, 989e12);
  EXPECT_EQ(lab.chip.title, "big") << "a title is not inherited";
  EXPECT_EQ(lab.links.front().size, 4);
  EXPECT_EQ(lab.links.front().bandwidth.value, 100e9);
  EXPECT_EQ(lab.links.front().bandwidth.source, "--set cluster.lab.link.nvlink.bandwidth");
  EXPECT_EQ(lab.chip.power.value, 650);
  EXPECT_EQ(prices_of(catalogue, "big").at(0).source, "my.toml:11");
  EXPECT_EQ(find_cluster(catalogue, "h200").links.front().size, 8);
}

TEST(ClusterFile, RoundTrips) {
  for (const ClusterSpec& cluster : builtin_catalogue().clusters) {
    const Catalogue again = parse_catalogue(cluster_file(cluster), "again.toml");
    EXPECT_EQ(again.used_cluster, cluster.name);
    EXPECT_EQ(find_cluster(again, cluster.name), cluster) << cluster.name;
  }
  ClusterSpec own = resolve_cluster("h200");
  own.name = own.chip.name = "a \"b\".c";
  own.chip.aliases = {"x y", "\"z\""};
  own.links.front().bandwidth = {1.0 / 3 * 1e9, "measured \\ here", Evidence::kMeasured};
  EXPECT_EQ(find_cluster(parse_catalogue(cluster_file(own), "own.toml"), own.name), own);
}

TEST(UserFile, IncludesFilesAndRejectsCycles) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "strata_plan_includes";
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const char* text) { std::ofstream(folder / name) << text; };
  write("base.toml", "[cluster.mine]\nextends = \"a100-80\"\npue = 1.5\nfailures_per_node_day = 0.001\n");
  write("top.toml", "include = \"base.toml\"\n[cluster.mine]\npue = 1.1\n");
  const ClusterSpec mine = resolve_cluster((folder / "top.toml").string());
  EXPECT_EQ(mine.pue.value, 1.1);
  EXPECT_EQ(mine.failures_per_node_day.value, 0.001);
  EXPECT_NE(mine.failures_per_node_day.source.find("base.toml:4"), std::string::npos);
  write("a.toml", "include = \"b.toml\"\n");
  write("b.toml", "include = \"a.toml\"\n");
  try {
    read_catalogue(folder / "a.toml");
    FAIL();
  } catch (const ConfigError& error) {
    expect_has(error.what(), {"cycle", "a.toml", "b.toml"});
  }
  EXPECT_THROW(resolve_cluster((folder / "absent.toml").string()), ConfigError);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(resolve_cluster("H200", std::vector<std::string>{"cluster.pue=1.4"}).pue.value, 1.4);
}

TEST(UserFile, ErrorsNameFileKeyFoundAndExpected) {
  const std::string head = "[cluster.x]\nextends = \"h100-sxm\"\n";
  expect_has(error_of(head + "[cluster.x.link.nvlink]\nbandwidth = 0\n"),
             {"[my.toml:4] cluster.x.link.nvlink.bandwidth", "found 0", "expected a bandwidth above 0"});
  expect_has(error_of(head + "[cluster.x.link.nvlink]\nbandwidth = \"5 GB\"\n"),
             {"found \"5 GB\"", "450 GB/s"});
  expect_has(error_of(head + "[cluster.x.link.rail]\nbandwidth = \"5 GB/s\"\n"),
             {"cluster.x.link.rail.size", "missing", "\"all\""});
  expect_has(error_of(head + "[cluster.x.link.rail]\nsize = 8\nbandwidth = \"5 GB/s\"\n"), {"the same size"});
  expect_has(error_of("[cluster.x]\nchip = \"h100-sxm\"\ndevices_per_host = 8\n[cluster.x.link.a]\nsize = 8\n"
                      "bandwidth = \"1 GB/s\"\n"),
             {"no link between all devices"});
  expect_has(
      error_of(head +
               "[[price]]\nchip = \"h100-sxm\"\nprovider = \"p\"\ndate = \"2026\"\nusd_per_hour = -1\n"),
      {"[my.toml:7] price.usd_per_hour", "found -1", "dollars per device hour of at least 0"});
  expect_has(error_of(head + "chip = \"h100-sxx\"\n"),
             {"my.toml:3", "h100-sxx", "did you mean \"h100-sxm\"?"});
  expect_has(error_of(head + "pues = 1.2\n"), {"cluster.x.pues", "unknown key", "did you mean \"pue\"?"});
  expect_has(error_of(head + "pue = 0.5\n"), {"cluster.x.pue", "at least 1"});
  expect_has(error_of(head + "devices_per_host = 0\n"),
             {"cluster.x.devices_per_host", "whole number from 1"});
  expect_has(error_of(head + "[chip.y]\npeak = { bf16 = \"9 TFLOP/s\" }\n"),
             {"chip.y.memory: missing", "chip.y.memory_bandwidth: missing"});
  expect_has(error_of(head + "[chip.y]\nextends = \"h200\"\npeak = { bf17 = 1 }\n"),
             {"bf17", "did you mean \"bf16\""});
  expect_has(error_of(head + "[chip.y]\nextends = \"h200\"\npower = { value = \"1 kW\", mark = \"sure\" }\n"),
             {"chip.y.power.mark", "found \"sure\"", "inferred"});
  expect_has(error_of(head + "[chip.a]\nextends = \"b\"\n[chip.b]\nextends = \"a\"\n"),
             {"found a cycle", "a → b"});
  expect_has(error_of("[cluster.x]\nextends = \"h100\"\n"),
             {"cluster.x.extends", "expected the name of a cluster"});
  expect_has(error_of(""), {"found no cluster", "use = \"NAME\""});
  expect_has(error_of("[cluster.a]\n[cluster.b]\n"), {"the clusters a, b"});
  expect_has(error_of("use = \"h100-sxn\"\n"), {"did you mean \"h100-sxm\"?"});
  expect_has(error_of("include = \"x.toml\"\n"), {"include"});
  expect_has(error_of("clusters = 1\nuse = \"h200\"\n"), {"did you mean \"cluster\"?"});
  expect_has(error_of("use = \"h200\"\n", {"cluster.link.nvlink.bandwith=1"}), {"bandwith", "bandwidth"});
  expect_has(error_of("use = \"h200\"\n", {"training.steps=1"}), {"[--set]", "cluster. or chip."});
  expect_has(error_of(head + "pue = nan\n"), {"cluster.x.pue"});
  expect_has(error_of("chip = 3\ncluster = \"x\"\nprice = 1\nregion = []\nuse = \"h200\"\n"),
             {"[my.toml:1] chip: found 3", "region", "[region.NAME]"});
}

TEST(Catalogue, NamesTheNearestCluster) {
  const auto refusal = [](const char* name) {
    try {
      resolve_cluster(name);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  expect_has(refusal("h100"), {"[--cluster]", "did you mean \"h100-sxm\"?"});
  expect_has(refusal("H100-SMX"), {"did you mean \"h100-sxm\"?"});
  expect_has(refusal("mi300"), {"did you mean \"mi300x\"?"});
}

TEST(Catalogue, NamesWithoutParsingAreThoseOfTheFiles) {
  const Catalogue catalogue = builtin_catalogue();
  std::vector<std::string> clusters, regions;
  for (const ClusterSpec& cluster : catalogue.clusters) clusters.push_back(cluster.name);
  for (const Region& region : catalogue.regions) regions.push_back(region.name);
  EXPECT_EQ(builtin_names("cluster"), clusters);
  EXPECT_EQ(builtin_names("region"), regions);
}

TEST(Processor, BecomesAChip) {
  hardware::DeviceSpec device;
  device.name = "Example CPU";
  device.threads = 2;
  device.gemm_flops[hardware::Precision::kFp32] = 200e9;
  device.memory_bytes = int64_t{8} << 30;
  device.memory_bytes_per_s = 20e9;
  device.source = "measured";
  device.date = "2026-01-31";
  const ChipSpec chip = hardware::chip_of(device);
  EXPECT_EQ(chip.kind, "cpu");
  EXPECT_EQ(chip.peak_of(Precision::kFp32).value, 200e9);
  EXPECT_EQ(chip.peak_of(Precision::kFp32).evidence, Evidence::kMeasured);
  EXPECT_FALSE(chip.peak_of(Precision::kBf16).known());
  EXPECT_EQ(chip.memory_bandwidth.value, 20e9);
}

}  // namespace
}  // namespace strata::planning
