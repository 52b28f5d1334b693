// The keys of catalogue files whose values are figures, with the quantity of each.
#pragma once

#include <string_view>

#include "plan/catalogue.h"
#include "plan/quantity_figure.h"

namespace strata::planning::detail {

template <typename Spec>
struct FigureKey {
  std::string_view key;
  Quantity quantity;
  Figure Spec::*member;
  bool required = false;
};

constexpr FigureKey<ChipSpec> kChipFigures[] = {
    {"memory", Quantity::kBytes, &ChipSpec::memory, true},
    {"memory_bandwidth", Quantity::kBytesPerSecond, &ChipSpec::memory_bandwidth, true},
    {"memory_achievable", Quantity::kFraction, &ChipSpec::memory_achievable},
    {"power", Quantity::kWatts, &ChipSpec::power},
    {"launch", Quantity::kSeconds, &ChipSpec::launch},
    {"host_link", Quantity::kBytesPerSecond, &ChipSpec::host_link},
};
constexpr FigureKey<LinkLevel> kLinkFigures[] = {
    {"bandwidth", Quantity::kBytesPerSecond, &LinkLevel::bandwidth, true},
    {"achievable", Quantity::kFraction, &LinkLevel::achievable},
    {"startup", Quantity::kSeconds, &LinkLevel::startup},
    {"latency", Quantity::kSeconds, &LinkLevel::latency},
    {"ramp", Quantity::kRate, &LinkLevel::ramp},
    {"ramp_bytes", Quantity::kBytes, &LinkLevel::ramp_bytes},
    {"cold_bandwidth", Quantity::kBytesPerSecond, &LinkLevel::cold_bandwidth},
    {"cached", Quantity::kBytes, &LinkLevel::cached},
    {"contention", Quantity::kRate, &LinkLevel::contention},
    {"compute_share", Quantity::kFraction, &LinkLevel::compute_share},
};
constexpr FigureKey<ClusterSpec> kClusterFigures[] = {
    {"nic_bandwidth", Quantity::kBytesPerSecond, &ClusterSpec::nic_bandwidth},
    {"host_power", Quantity::kWatts, &ClusterSpec::host_power},
    {"pue", Quantity::kRate, &ClusterSpec::pue},
    {"failures_per_node_day", Quantity::kRate, &ClusterSpec::failures_per_node_day},
    {"restart", Quantity::kSeconds, &ClusterSpec::restart},
    {"storage_write_per_host", Quantity::kBytesPerSecond, &ClusterSpec::storage_write_per_host},
    {"storage_read_per_host", Quantity::kBytesPerSecond, &ClusterSpec::storage_read_per_host},
};
constexpr FigureKey<Region> kRegionFigures[] = {
    {"co2_per_kwh", Quantity::kRate, &Region::co2_per_kwh},
    {"usd_per_kwh", Quantity::kMoney, &Region::usd_per_kwh},
};

}  // namespace strata::planning::detail
