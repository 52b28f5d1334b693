// Chips, clusters, prices and regions that runs are planned for.
//
// The catalogue is data: the TOML files in data/planning, compiled into the program, and optionally a user's
// file that overrides them. Every value has a source. Values are in SI units (bytes, bytes/s, FLOP/s, W, s);
// a file may write them with a unit ("80 GB", "400 Gb/s"). Rates are dense and for one device; bandwidths are
// for one direction. All errors of a file are reported in one ConfigError, each with file, line, key, the
// value found, the values expected and the nearest name.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "hardware/cluster_spec.h"

namespace strata::planning {

using hardware::ByPrecision;
using hardware::ChipSpec;
using hardware::ClusterSpec;
using hardware::Evidence;
using hardware::Figure;
using hardware::Group;
using hardware::JobMttf;
using hardware::kAllPrecisions;
using hardware::LinkLevel;
using hardware::parse_precision;
using hardware::Precision;
using hardware::to_string;
using hardware::Topology;

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

// Values of --set: of a run, and of a cluster and its chip ("cluster.…", "chip.…").
struct Sets {
  std::vector<std::string> run, cluster;
};
Sets split_sets(std::span<const std::string> sets);

// The catalogue in which `--cluster NAME|FILE` is looked up: the file's, else the built-in one.
Catalogue catalogue_for(const std::string& name_or_file);
// `--cluster NAME|FILE`: a built-in cluster, or the used cluster of a file (a path with ".toml", ".json" or "/"); a JSON
// file is that of `strata doctor --json` (doctor_file.h).
ClusterSpec resolve_cluster(const std::string& name_or_file, std::span<const std::string> sets = {});

// A cluster file that describes `cluster` and its chip completely; reading it returns the same cluster.
std::string cluster_file(const ClusterSpec& cluster);

// The prices of a chip, cheapest first; only those with `terms` if given.
std::vector<Price> prices_of(const Catalogue& catalogue, std::string_view chip,
                             std::optional<Terms> terms = std::nullopt);

}  // namespace strata::planning
