// The bytes that one member sends to another, or receives from it, in the wire type: all transfers in
// sequence, each starting on a cache line. Any range can be packed and unpacked.
#pragma once

#include <span>
#include <vector>

#include "comm/plan.h"
#include "comm/sums.h"

namespace strata::comm {

class WireView {
 public:
  enum class Side : uint8_t { kSend, kReceive };
  WireView(const Plan& plan, Side side, int member);

  int64_t bytes() const { return starts_.back(); }
  // Address of [begin, end) in the caller's buffer if its layout there is that of the wire; null if it must
  // be packed.
  std::byte* direct(std::span<const Buffers> buffers, int64_t begin, int64_t end) const;
  void pack(std::byte* to, std::span<const Buffers> buffers, int64_t begin, int64_t end) const;
  // Accumulates if the buffers request it.
  void unpack(const std::byte* from, std::span<const Buffers> buffers, int64_t begin, int64_t end) const;
  // Writes the sum of `addends`, each the wire bytes [begin, end), to the receive buffers, without rounding.
  void sum(std::span<const std::byte* const> addends, std::span<const Buffers> buffers, int64_t begin,
           int64_t end) const;
  // Like sum(), but rounds to the wire type and writes to `to`.
  void sum_packed(std::byte* to, std::span<const std::byte* const> addends, int64_t begin, int64_t end) const;

 private:
  struct Part {
    size_t transfer = 0;
    int64_t element = 0, count = 0;  // of the transfer's stream
    int64_t at = 0;                  // bytes after `begin`
  };
  template <class F>
  void for_parts(int64_t begin, int64_t end, const F& visit) const;
  // Visits the ranges of a part that are contiguous in the caller's buffer.
  template <class F>
  void for_ranges(const Part& part, std::span<const Buffers> buffers, const F& visit) const;
  std::byte* base(const Buffers& buffers) const;

  const Plan* plan_;
  Side side_;
  std::vector<const Stream*> streams_;  // by transfer
  std::vector<int64_t> starts_;         // by transfer, then the end
};

}  // namespace strata::comm
