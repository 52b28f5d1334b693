// Time of collectives among a group of ranks that may span hosts.
//
// Clusters are taken as two levels: the largest domain with a size (NVLink, xGMI, …) and the network
// between domains. Ranks of a group are `stride` devices apart: tensor ranks are neighbours, data ranks are
// not.
#pragma once

#include <cstdint>

#include "plan/catalogue.h"

namespace strata::planning {

class GroupNetwork {
 public:
  explicit GroupNetwork(const ClusterSpec& cluster);

  // Devices of one domain.
  int64_t domain() const { return domain_; }
  bool inside(const Group& group) const { return group.ranks * group.stride <= domain_; }

  // All-gather or reduce-scatter of a buffer of `bytes` (of the whole group): (n-1)/n of it inside a domain;
  // across domains the ranks of a domain share their NICs' bandwidth (rail-optimized rings), and the slower
  // level decides. Without latency.
  double gather_seconds(const Group& group, double bytes) const;
  // One hop for each rank of a ring: NCCL's hardware latency of the Simple protocol, 3.4 us over NVLink and
  // 9.6 us over the network, the latter x 1.9 in rings across nodes (tuning.cc) and x 1.6, as published runs
  // with many small collectives over 32 hosts or more suggest (ZeRO-3 of Megatron-LM SC21, nanotron on 512
  // GPUs; set on three rows, 2026-11-26).
  double ring_latency(const Group& group) const;
  // A tree all-reduce: 2 log2(domains) hops of 50 us between and one of 3.4 us for each rank inside a domain.
  double tree_latency(const Group& group) const;

  double inner_rate() const { return inner_rate_; }  // bytes/s of a device within its domain
  double outer_rate() const { return outer_rate_; }  // and beyond it

 private:
  int64_t domain_ = 1;
  bool mesh_ = false;
  double inner_rate_ = 0;
  double outer_rate_ = 0;
};

}  // namespace strata::planning
