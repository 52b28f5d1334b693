// Chips, clusters, prices and regions that runs are planned for.
//
// The catalogue is data: the TOML files in data/planning, compiled into the program, and optionally a user's
// file that overrides them. Every value has a source. Values are in SI units (bytes, bytes/s, FLOP/s, W, s);
// a file may write them with a unit ("80 GB", "400 Gb/s"). Rates are dense and for one device; bandwidths are
// for one direction. All errors of a file are reported in one ConfigError, each with file, line, key, the
// value found, the values expected and the nearest name.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "hardware/device_spec.h"

namespace strata::planning {

// How a value is known: the key `mark` of the files.
enum class Evidence {
  kRead,       // read in the source
  kComputed,   // calculated from values that were read
  kMeasured,   // measured on the device
  kSecondary,  // a survey, a blog, a price comparison
  kInferred,   // an estimate; no source states it
  kMemory,     // from memory; verify before relying on it
  kUser,       // a user's file or --set
};
std::string_view to_string(Evidence evidence);

struct Figure {
  double value = 0.0;
  std::string source;  // empty: not known
  Evidence evidence = Evidence::kRead;
  bool known() const { return !source.empty(); }
  friend bool operator==(const Figure&, const Figure&) = default;
};

enum class Dtype { kFp32, kTf32, kBf16, kFp16, kFp8, kFp4 };
inline constexpr size_t kDtypes = 6;
std::string_view to_string(Dtype dtype);
std::optional<Dtype> parse_dtype(std::string_view name);

struct ChipSpec {
  std::string name;   // "h100-sxm"
  std::string title;  // "NVIDIA H100 SXM 80 GB"
  std::string vendor;
  std::string kind;                        // "gpu", "tpu" or "cpu"
  std::vector<std::string> aliases;        // other names, including those in published tables
  std::array<Figure, kDtypes> peak;        // FLOP/s by Dtype; 0: the chip does not have that dtype
  std::array<Figure, kDtypes> achievable;  // fraction of the peak that a large GEMM reaches
  Figure memory;                           // bytes
  Figure memory_bandwidth;                 // bytes/s
  Figure memory_achievable;                // fraction of memory_bandwidth that streaming kernels reach
  Figure power;                            // W, the board's limit
  Figure launch;                           // s of host time for one kernel

  const Figure& peak_of(Dtype dtype) const { return peak[static_cast<size_t>(dtype)]; }
  const Figure& achievable_of(Dtype dtype) const { return achievable[static_cast<size_t>(dtype)]; }
  friend bool operator==(const ChipSpec&, const ChipSpec&) = default;
};

enum class Topology { kSwitch, kMesh, kTorus };
std::string_view to_string(Topology topology);

// Devices that reach each other over one kind of link.
struct LinkLevel {
  static constexpr int64_t kAll = 0;  // size of the outermost level: every device
  std::string name;                   // "nvlink", "infiniband", …
  int64_t size = kAll;                // devices in one domain
  Topology topology = Topology::kSwitch;
  Figure bandwidth;   // bytes/s a device can send
  Figure achievable;  // fraction of it for large messages; above 1 with reduction in the switch
  Figure startup;     // s, fixed cost of one collective
  Figure latency;     // s per hop of a ring
  // Small messages take longer by 1 + ramp * ramp_bytes / (bytes + ramp_bytes).
  Figure ramp;
  Figure ramp_bytes;
  Figure contention;  // further fraction of time for each peer that sends at the same time
  friend bool operator==(const LinkLevel&, const LinkLevel&) = default;
};

// Seconds of a collective over one level: startup + wire / (bandwidth * achievable) * (the ramp above).
// `bytes` is the size of the buffer, `wire_factor` the bytes that each device sends for one of them: for n
// devices 2(n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all (nccl-tests). In a
// mesh of `size`, n < size devices have (n-1)/(size-1) of the bandwidth.
double collective_seconds(const LinkLevel& level, int64_t devices, double bytes, double wire_factor);

// Hours between failures of whole jobs, measured at one size.
struct JobMttf {
  int64_t devices = 0;
  double seconds = 0.0;
  std::string source;
  friend bool operator==(const JobMttf&, const JobMttf&) = default;
};

struct ClusterSpec {
  std::string name;
  std::string title;
  ChipSpec chip;
  int64_t devices_per_host = 1;
  int64_t nics_per_host = 0;
  std::vector<LinkLevel> links;        // ascending by size; the last one connects all devices
  Figure nic_bandwidth;                // bytes/s of one NIC
  Figure host_power;                   // W of a host besides its devices
  Figure pue;                          // power of the building over power of the machines, ≥ 1
  Figure failures_per_node_day;        // failures of one host that stop a job
  Figure restart;                      // s from a failure to the first new step
  Figure storage_write_per_host;       // bytes/s to checkpoint storage
  Figure storage_read_per_host;        // bytes/s
  std::vector<JobMttf> measured_mttf;  // ascending by devices
  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;
};

enum class Terms { kOnDemand, kReserved, kSpot };
std::string_view to_string(Terms terms);

// Dollars per device hour. Published prices are ranges; low = high if only one figure was found.
struct Price {
  std::string chip;
  std::string provider;
  std::string region;  // empty: not stated
  Terms terms = Terms::kOnDemand;
  double low = 0.0;
  double high = 0.0;
  std::string date;  // "2026", "2024-12-27"; "undated" if the source has none
  std::string source;
  Evidence evidence = Evidence::kSecondary;
};

struct Region {
  std::string name;
  Figure co2_per_kwh;  // kg of CO2 equivalent
  Figure usd_per_kwh;
};

struct Catalogue {
  std::vector<ChipSpec> chips;
  std::vector<ClusterSpec> clusters;
  std::vector<Price> prices;
  std::vector<Region> regions;
  std::string used_cluster;  // the cluster that a user's file describes; empty for the built-in catalogue
};

Catalogue builtin_catalogue();
// The names of the built-in tables [cluster.NAME] or [region.NAME], in their order, without parsing the files:
// for completions, which every start of the program prepares.
std::vector<std::string> builtin_names(std::string_view table);

// The built-in catalogue, overridden by a user's file. The file may override any table of a built-in chip or
// cluster and define new ones that extend others (`extends = "h100-sxm"`). Its only [cluster.NAME], or the
// one that `use = "NAME"` names, becomes used_cluster. `sets` are KEY=VALUE; keys begin with "cluster." or
// "chip." and apply to the used cluster and its chip.
Catalogue read_catalogue(const Path& file, std::span<const std::string> sets = {});
// Like read_catalogue(), for text that does not come from a file: messages contain `name`. Rejects includes.
Catalogue parse_catalogue(std::string_view text, const std::string& name,
                          std::span<const std::string> sets = {});

// By name or alias, ignoring case. ConfigError with the nearest name.
const ChipSpec& find_chip(const Catalogue& catalogue, std::string_view name);
const ClusterSpec& find_cluster(const Catalogue& catalogue, std::string_view name);
const Region& find_region(const Catalogue& catalogue, std::string_view name);

// The catalogue in which `--cluster NAME|FILE` is looked up: the file's, else the built-in one.
Catalogue catalogue_for(const std::string& name_or_file);
// `--cluster NAME|FILE`: a built-in cluster, or the used cluster of a file (a path with ".toml" or "/").
ClusterSpec resolve_cluster(const std::string& name_or_file, std::span<const std::string> sets = {});

// A cluster file that describes `cluster` and its chip completely; reading it returns the same cluster.
std::string cluster_file(const ClusterSpec& cluster);

// The prices of a chip, cheapest first; only those with `terms` if given.
std::vector<Price> prices_of(const Catalogue& catalogue, std::string_view chip,
                             std::optional<Terms> terms = std::nullopt);

// The processor that `strata doctor` measured; the rates of its best GEMMs are its peaks.
ChipSpec chip_of(const hardware::DeviceSpec& device);

}  // namespace strata::planning
