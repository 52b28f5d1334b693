// How fast ranks of one host exchange data, for plans and predictions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace strata::comm {

// Collectives of two ranks whose whole value has `bytes` bytes of fp32: each rank sends half of a gather and keeps
// half of a reduction into shards.
enum class Measured : uint8_t { kGather, kReduceScatter, kAllReduce };
inline constexpr Measured kAllMeasured[] = {Measured::kGather, Measured::kReduceScatter,
                                            Measured::kAllReduce};
std::string_view name_of(Measured kind);
Operation operation_of(Measured kind, int64_t bytes, int rank);

struct ExchangeRate {
  double bytes_per_s = 0;      // that a rank receives from another in a large gather
  double startup_seconds = 0;  // of a gather of a few bytes
};
// Between two ranks of this process, on two threads: gathers of 4 MB and of 16 bytes, medians. Takes some 50 ms.
ExchangeRate measure_exchange();

struct CollectiveTime {
  Measured kind = Measured::kGather;
  int64_t bytes = 0;   // of the whole value
  double seconds = 0;  // median
};
// Each kind at 4 KiB, 256 KiB and 16 MiB, between the same two ranks. Takes some 300 ms.
std::vector<CollectiveTime> measure_collectives();

}  // namespace strata::comm
