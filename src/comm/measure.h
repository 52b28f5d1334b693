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
  double bytes_per_s = 0;       // that a rank receives from another in a gather that the caches hold
  double cold_bytes_per_s = 0;  // the same in one that comes from memory
  double startup_seconds = 0;   // of a gather of a few bytes
};
// Between two ranks of this process, on two threads, medians: gathers of 16 bytes, of an eighth of the last-level cache
// and of twice the cache. The buffers of both ranks have four times the bytes of a gather. At most 128 MiB of `cache_bytes`
// count. Takes some 300 ms.
ExchangeRate measure_exchange(int64_t cache_bytes);

struct CollectiveTime {
  Measured kind = Measured::kGather;
  int64_t bytes = 0;   // of the whole value
  double seconds = 0;  // median
};
// Each kind at 4 KiB, 256 KiB and 16 MiB, between the same two ranks. Takes some 300 ms.
std::vector<CollectiveTime> measure_collectives();

}  // namespace strata::comm
