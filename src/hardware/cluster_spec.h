// Clusters: the chips, the links between them and the hosts that hold them. Every value has a source. Values are in
// SI units (bytes, bytes/s, FLOP/s, W, s); rates are dense and for one device, bandwidths for one direction.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hardware/device_spec.h"
#include "hardware/precision.h"

namespace strata::hardware {

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

struct ChipSpec {
  std::string name;   // "h100-sxm"
  std::string title;  // "NVIDIA H100 SXM 80 GB"
  std::string vendor;
  std::string kind;                  // "gpu", "tpu" or "cpu"
  std::vector<std::string> aliases;  // other names, including those in published tables
  ByPrecision<Figure> peak;          // FLOP/s; 0: the chip does not have that format
  ByPrecision<Figure> achievable;    // fraction of the peak that a large GEMM reaches
  Figure memory;                     // bytes
  Figure memory_bandwidth;           // bytes/s
  Figure memory_achievable;          // fraction of memory_bandwidth that streaming kernels reach
  Figure power;                      // W, the board's limit
  Figure launch;                     // s of host time for one kernel
  Figure host_link;                  // bytes/s between the device and its host's memory

  const Figure& peak_of(Precision precision) const { return peak[precision]; }
  const Figure& achievable_of(Precision precision) const { return achievable[precision]; }
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
  Figure bandwidth = {};   // bytes/s a device can send
  Figure achievable = {};  // fraction of it for large messages; above 1 with reduction in the switch
  Figure startup = {};     // s, fixed cost of one collective
  Figure latency = {};     // s per hop of a ring
  // Small messages take longer by 1 + ramp * ramp_bytes / (bytes + ramp_bytes).
  Figure ramp = {};
  Figure ramp_bytes = {};
  // Where the bandwidth depends on whether the bytes come from a cache: bytes/s of those that do not, and the largest
  // buffer that the caches hold. Not known: as above.
  Figure cold_bandwidth = {};
  Figure cached = {};
  Figure contention = {};  // further fraction of time for each peer that sends at the same time
  Figure compute_share =
      {};  // fraction of its compute that a device lacks while it communicates over this level
  friend bool operator==(const LinkLevel&, const LinkLevel&) = default;
};

// A collective of a group of ranks. `bytes` is the whole value of an all-reduce, a gather or a reduction into
// shards, what one rank has to give away in an all-to-all, and the message of a send.
enum class Exchange { kAllReduce, kGather, kReduceScatter, kAllToAll, kSend };

// Ranks that are equally far apart: with stride 8, one of each host of 8. A send goes from the first to the last.
struct Group {
  int64_t ranks = 1;
  int64_t stride = 1;
};

// Seconds of an exchange over the levels that it crosses, ascending by size. On each level, members that lower
// levels connect share the work: a group with m members on each host moves 1/m of the bytes through each member's
// NIC. The slowest level decides; latencies add up. 0 without links. Over one level it takes
//   startup + (n − 1) latency + wire / (bandwidth achievable) (the ramp above)
// with n members, of which each sends for one byte 2(n − 1)/n in an all-reduce and (n − 1)/n in a gather, a reduction
// into shards and an all-to-all (nccl-tests, PERFORMANCE.md). In a mesh of `size`, n < size devices have
// (n − 1)/(size − 1) of the bandwidth.
// `cold`: the fraction of the buffer that no cache holds when it starts. Of more than LinkLevel::cached bytes, the part
// beyond comes from memory too; from twice that size on, all.
double exchange_seconds(std::span<const LinkLevel> links, Exchange exchange, const Group& group, double bytes,
                        double cold = 0);
// The outermost level that a group crosses; nullptr: none.
const LinkLevel* outermost(std::span<const LinkLevel> links, const Group& group);

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
  // A host that was measured: its device as one rank of it has it, as one of two, …. Programs are compiled and priced
  // for these; the figures of `chip` are those of the last. Empty: a cluster that is described by figures.
  std::vector<DeviceSpec> measured;
  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;
};

// The hardware of a run: one device a rank, and the links between them, ascending by size.
struct Machine {
  DeviceSpec device;
  std::vector<LinkLevel> links;
  std::string chip;  // its name in the catalogue; empty: this machine's processor

  // Ranks on this host: they exchange rows through its memory, and their own threads copy them.
  Machine(DeviceSpec here);  // NOLINT(google-explicit-constructor): a device by itself is a machine
  // `ranks`: of the run; the only rank of a measured host has all of its processors.
  Machine(const ClusterSpec& cluster, int64_t ranks);
};

// A host as a cluster: `measured` as in ClusterSpec, not empty.
ClusterSpec cluster_of(std::vector<DeviceSpec> measured);

// The processor that was measured; the rates of its best GEMMs are its peaks.
ChipSpec chip_of(const DeviceSpec& device);
// The chip as programs are compiled and priced for it: the rates that large GEMMs and streams reach.
DeviceSpec device_of(const ChipSpec& chip);

}  // namespace strata::hardware
