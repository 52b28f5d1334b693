// Merge rules by pair of ids: an open-addressing table made for one look-up per neighbouring pair.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata::data {

inline constexpr uint32_t kNoRank = 0xFFFFFFFF;

struct MergeRule {
  uint32_t rank = kNoRank;  // lower merges first
  int32_t id = -1;          // of the merged token
};

class MergeTable {
 public:
  MergeTable() : MergeTable(0) {}
  explicit MergeTable(size_t rules) : slots_(std::bit_ceil(rules * 2 + 16)), mask_(slots_.size() - 1) {}

  // A pair that is there already takes the new rule. At most the `rules` of the constructor.
  void insert(int32_t left, int32_t right, MergeRule rule) {
    const uint64_t key = make_key(left, right);
    size_t at = position(key);
    while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & mask_;
    slots_[at] = {key, rule};
  }

  MergeRule find(int32_t left, int32_t right) const {
    const uint64_t key = make_key(left, right);
    for (size_t at = position(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.key == key) return slot.rule;
      if (slot.key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // ids are never negative
  struct Slot {
    uint64_t key = kEmpty;
    MergeRule rule;
  };
  static uint64_t make_key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t position(uint64_t key) const { return ((key * 0x9E3779B97F4A7C15u) >> 29) & mask_; }

  std::vector<Slot> slots_;
  size_t mask_;
};

}  // namespace strata::data
