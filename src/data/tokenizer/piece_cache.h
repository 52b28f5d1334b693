// The ids of pieces seen lately. Text repeats its words, so most pieces are found here and need no model.
//
// Two entries per set, one set per cache line: a new piece takes the first entry, its predecessor the second.
// Keys are stored completely (up to 15 bytes and their number in two words), so a hit is never wrong.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace strata::data {

class PieceCache {
 public:
  static constexpr size_t kLongestPiece = 15;

  struct Key {
    uint64_t low = 0;
    uint64_t high = 0;  // its top byte: the size
  };

  // `end` is where the memory around the piece ends: up to there it may be read.
  static Key make_key(std::string_view piece, const char* end) {
    Key key;
    if (end - piece.data() >= 16) {
      std::memcpy(&key, piece.data(), 16);
      key.low &= kFirstBytes[piece.size()];  // no branch: sizes vary, so it would be guessed wrong
      key.high &= kBytesBehindEight[piece.size()];
    } else {
      std::memcpy(&key, piece.data(), piece.size());
    }
    key.high |= static_cast<uint64_t>(piece.size()) << 56;
    return key;
  }

  static size_t size(const Key& key) { return key.high >> 56; }
  static uint64_t hash(const Key& key) {
    uint64_t h = key.low * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32 ^ key.high) * 0xD6E8FEB86659FD93u;
    return h ^ h >> 29;
  }

  void prefetch(const Key& key) {
    if (sets_.empty()) sets_.resize(kSets);
    __builtin_prefetch(&sets_[position(key)]);
  }

  // Appends the ids of the piece, if it is known.
  bool append(const Key& key, std::vector<int32_t>& out) {
    if (sets_.empty()) sets_.resize(kSets);
    Set& set = sets_[position(key)];
    const Slot* slot = &set.slots[0];
    if (slot->low != key.low || slot->high != key.high) {
      ++slot;
      if (slot->low != key.low || slot->high != key.high) return false;
    }
    for (const int32_t id : slot->ids) {
      if (id < 0) break;
      out.push_back(id);
    }
    return true;
  }

  void store(const Key& key, std::span<const int32_t> ids) {
    if (ids.size() > kIds) return;
    Set& set = sets_[position(key)];
    set.slots[1] = set.slots[0];
    Slot& slot = set.slots[0];
    slot.low = key.low;
    slot.high = key.high;
    for (size_t i = 0; i < kIds; ++i) slot.ids[i] = i < ids.size() ? ids[i] : -1;
  }

 private:
  // The bits of a piece of n bytes in the first and in the second word of its key.
  static constexpr std::array<uint64_t, kLongestPiece + 1> kFirstBytes = [] {
    std::array<uint64_t, kLongestPiece + 1> masks{};
    for (size_t n = 0; n < masks.size(); ++n) masks[n] = n < 8 ? (uint64_t{1} << (n * 8)) - 1 : ~uint64_t{0};
    return masks;
  }();
  static constexpr std::array<uint64_t, kLongestPiece + 1> kBytesBehindEight = [] {
    std::array<uint64_t, kLongestPiece + 1> masks{};
    for (size_t n = 8; n < masks.size(); ++n) masks[n] = (uint64_t{1} << ((n - 8) * 8)) - 1;
    return masks;
  }();
  static constexpr size_t kIds = 4;
  static constexpr size_t kSets = size_t{1} << 14;
  struct Slot {
    uint64_t low = 0;
    uint64_t high = 0;  // of an empty entry 0: no key has that
    int32_t ids[kIds];  // ended by -1 if there are fewer
  };
  struct alignas(64) Set {
    Slot slots[2];
  };
  static_assert(sizeof(Set) == 64, "one cache line");

  static size_t position(const Key& key) { return hash(key) >> 50; }
  static_assert(kSets == size_t{1} << (64 - 50));

  std::vector<Set> sets_;
};

}  // namespace strata::data
