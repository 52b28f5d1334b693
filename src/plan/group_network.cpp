#include "plan/group_network.h"

#include <algorithm>
#include <cmath>

namespace strata::planning {
namespace {

// Values above it describe reductions in the switch, which gathers do not have.
constexpr double kMostOfALink = 0.8;
constexpr double kNcclStart = 20e-6;  // s, of one collective (A100 and H100 hosts)
constexpr double kHopInside = 3.4e-6;
constexpr double kHopBetween = 9.6e-6 * 1.9 * 1.6;
constexpr double kTreeHopBetween = 50e-6;

}  // namespace

GroupNetwork::GroupNetwork(const ClusterSpec& cluster) {
  const LinkLevel& outer = cluster.links.back();
  outer_rate_ = outer.bandwidth.value * outer.achievable.value;
  inner_rate_ = outer_rate_;
  for (const LinkLevel& level : cluster.links) {
    if (level.size == LinkLevel::kAll) continue;
    domain_ = level.size;
    mesh_ = level.topology == Topology::kMesh;
    inner_rate_ = level.bandwidth.value * std::min(level.achievable.value, kMostOfALink);
  }
}

double GroupNetwork::gather_seconds(const Group& group, double bytes) const {
  if (group.ranks <= 1 || bytes <= 0) return 0;
  const auto ranks = static_cast<double>(group.ranks);
  const int64_t local = std::clamp<int64_t>(domain_ / group.stride, 1, group.ranks);
  double inner = 0;
  if (local > 1) {
    double rate = inner_rate_;
    if (mesh_) rate *= static_cast<double>(local - 1) / static_cast<double>(domain_ - 1);
    inner = bytes * static_cast<double>(local - 1) / static_cast<double>(local) / rate;
  }
  if (inside(group)) return inner;
  const double domains = ranks / static_cast<double>(local);
  return std::max(inner, bytes * (domains - 1) / domains / (outer_rate_ * static_cast<double>(local)));
}

double GroupNetwork::ring_latency(const Group& group) const {
  if (group.ranks <= 1) return 0;
  const auto ranks = static_cast<double>(group.ranks);
  if (inside(group)) return kNcclStart + (ranks - 1) * kHopInside;
  const auto local = static_cast<double>(std::clamp<int64_t>(domain_ / group.stride, 1, group.ranks));
  const double domains = ranks / local;
  return kNcclStart + (ranks - domains) * kHopInside + domains * kHopBetween;
}

double GroupNetwork::tree_latency(const Group& group) const {
  if (group.ranks <= 1) return 0;
  const auto local = static_cast<double>(std::clamp<int64_t>(domain_ / group.stride, 1, group.ranks));
  const double domains = std::max(1.0, static_cast<double>(group.ranks) / local);
  return kNcclStart + 2 * (std::log2(domains) * kTreeHopBetween + (local - 1) * kHopInside);
}

}  // namespace strata::planning
