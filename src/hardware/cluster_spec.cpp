#include "hardware/cluster_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hardware/roofline.h"

namespace strata::hardware {

std::string_view to_string(Evidence evidence) {
  switch (evidence) {
    case Evidence::kRead:
      return "read";
    case Evidence::kComputed:
      return "computed";
    case Evidence::kMeasured:
      return "measured";
    case Evidence::kSecondary:
      return "secondary";
    case Evidence::kInferred:
      return "inferred";
    case Evidence::kMemory:
      return "memory";
    case Evidence::kUser:
      return "user";
  }
  return "";
}

std::string_view to_string(Topology topology) {
  static constexpr std::string_view kNames[] = {"switch", "mesh", "torus"};
  return kNames[static_cast<size_t>(topology)];
}

namespace {

// Bytes/s that a device sends of a buffer of `bytes`.
double bandwidth_of(const LinkLevel& level, double bytes, double cold) {
  const double warm = level.bandwidth.value;
  if (!level.cold_bandwidth.known()) return warm;
  const double cached = level.cached.value;
  const double beyond = cached > 0 ? std::clamp(bytes / cached - 1, 0.0, 1.0) : 0;
  const double share = std::max(cold, beyond);
  return 1 / ((1 - share) / warm + share / level.cold_bandwidth.value);
}

// Seconds in which each of `devices` sends `wire` bytes over a level, of a buffer of `bytes`.
double transfer_seconds(const LinkLevel& level, int64_t devices, double bytes, double wire, double cold) {
  double bandwidth = bandwidth_of(level, bytes, cold) * level.achievable.value;
  if (level.topology == Topology::kMesh && level.size > devices)
    bandwidth *= static_cast<double>(devices - 1) / static_cast<double>(level.size - 1);
  const double ramp = 1 + level.ramp.value * level.ramp_bytes.value / (bytes + level.ramp_bytes.value);
  return wire / bandwidth * ramp;
}

// How many members of a group one domain of a level holds.
int64_t members_in(const LinkLevel& level, const Group& group) {
  if (level.size == LinkLevel::kAll) return group.ranks;
  return std::clamp<int64_t>(level.size / group.stride, 1, group.ranks);
}

}  // namespace

const LinkLevel* outermost(std::span<const LinkLevel> links, const Group& group) {
  if (group.ranks <= 1) return nullptr;
  for (const LinkLevel& level : links)
    if (members_in(level, group) == group.ranks) return &level;
  return links.empty() ? nullptr : &links.back();
}

double exchange_seconds(std::span<const LinkLevel> links, Exchange exchange, const Group& group, double bytes,
                        double cold) {
  if (group.ranks <= 1 || bytes <= 0 || links.empty()) return 0.0;
  const auto all = static_cast<double>(group.ranks);
  double start = 0.0, transfer = 0.0;
  int64_t inside = 1;  // members that the levels so far connect
  for (const LinkLevel& level : links) {
    const int64_t members = members_in(level, group);
    if (members == inside) continue;
    const auto within = static_cast<double>(inside), reached = static_cast<double>(members);
    // Of the domains that this level connects, each member speaks for its own: of a ring with one lane for each.
    const double lanes = reached / within;
    double wire = bytes / within * (lanes - 1) / lanes;
    if (exchange == Exchange::kAllReduce) wire *= 2;
    if (exchange == Exchange::kSend) wire = bytes;
    if (exchange == Exchange::kAllToAll) wire = bytes * (reached - within) / all;
    double seconds = transfer_seconds(level, members, bytes, wire, cold);
    if (exchange == Exchange::kAllToAll) seconds *= 1 + level.contention.value * (lanes - 1);
    // Levels work at the same time, on different parts.
    transfer = exchange == Exchange::kSend ? seconds : std::max(transfer, seconds);
    start = std::max(start, level.startup.value) + (lanes - 1) * level.latency.value;
    inside = members;
    if (inside == group.ranks) break;
  }
  return start + transfer;
}

ChipSpec chip_of(const DeviceSpec& device) {
  const bool measured = device.source == "measured";
  const Evidence evidence = measured ? Evidence::kMeasured : Evidence::kRead;
  const std::string source =
      measured ? fmt::format("strata doctor, {}, {} threads", device.date, device.threads) : device.source;
  const auto figure = [&](double value) { return value > 0 ? Figure{value, source, evidence} : Figure{}; };
  ChipSpec chip;
  chip.name = "this-machine";
  chip.title = device.name;
  chip.kind = device.kind;
  for (const Precision precision : kAllPrecisions)
    chip.peak[precision] = figure(device.gemm_flops[precision]);
  // The rates are measured for the best GEMM and for streaming, so all of them is achievable.
  for (Figure& fraction : chip.achievable.values) fraction = {1.0, source, evidence};
  chip.memory_achievable = {1.0, source, evidence};
  chip.memory = figure(static_cast<double>(device.memory_bytes));
  chip.memory_bandwidth = figure(device.memory_bytes_per_s);
  chip.launch = figure(device.launch_seconds);
  chip.power = figure(device.power_watts);
  return chip;
}

Machine::Machine(DeviceSpec here) : device(std::move(here)) {
  // Not measured: a copy reads and writes, and the processors share the memory with those of another rank.
  const double bandwidth =
      device.exchange_bytes_per_s > 0 ? device.exchange_bytes_per_s : device.memory_bytes_per_s / 4;
  const double startup = device.exchange_seconds > 0 ? device.exchange_seconds : 20e-6;
  if (bandwidth <= 0) return;
  const auto figure = [&](double value) { return Figure{value, device.source, Evidence::kMeasured}; };
  LinkLevel memory{.name = "memory",
                   .bandwidth = figure(bandwidth),
                   .achievable = figure(1),
                   .startup = figure(startup),
                   .compute_share = figure(1)};
  if (device.exchange_cold_bytes_per_s > 0) {
    memory.cold_bandwidth = figure(device.exchange_cold_bytes_per_s);
    // The cache holds two ranks' buffers to send and to receive.
    memory.cached = figure(static_cast<double>(cache_bytes(device)) / 4);
  }
  links.push_back(std::move(memory));
}

Machine::Machine(const ClusterSpec& cluster, int64_t ranks) : links(cluster.links) {
  if (cluster.measured.empty()) {
    device = device_of(cluster.chip);
    chip = cluster.chip.name;
    return;
  }
  const auto sharing = static_cast<size_t>(std::clamp<int64_t>(ranks, 1, std::ssize(cluster.measured)));
  device = cluster.measured[sharing - 1];
}

ClusterSpec cluster_of(std::vector<DeviceSpec> measured) {
  ClusterSpec out;
  out.name = "this-machine";
  out.title = measured.back().name;
  out.chip = chip_of(measured.back());
  out.devices_per_host = std::ssize(measured);
  out.links = Machine(measured.back()).links;
  out.measured = std::move(measured);
  return out;
}

DeviceSpec device_of(const ChipSpec& chip) {
  DeviceSpec device;
  device.name = chip.title.empty() ? chip.name : chip.title;
  device.kind = chip.kind;
  device.cores = device.threads = 1;
  device.memory_bytes = static_cast<int64_t>(chip.memory.value);
  for (const Precision precision : kAllPrecisions) {
    device.peak_flops[precision] = chip.peak[precision].value;
    device.gemm_flops[precision] = chip.peak[precision].value * chip.achievable[precision].value;
  }
  device.memory_bytes_per_s = chip.memory_bandwidth.value * chip.memory_achievable.value;
  device.launch_seconds = chip.launch.value;
  device.power_watts = chip.power.value;
  return device;
}

}  // namespace strata::hardware
