#include "data/tokenizer/word_counts.h"

#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/hash.h"

namespace strata::data {

WordCounts::WordCounts()
    : short_slots_(size_t{1} << 15),
      short_mask_(short_slots_.size() - 1),
      long_slots_(size_t{1} << 12),
      long_mask_(long_slots_.size() - 1) {}

void WordCounts::add(const WordCounts& other) {
  WordQueue queue(*this);
  for (const Short& slot : other.short_slots_) {
    if (slot.key.high != 0) queue.add(slot);
  }
  queue.flush();
  for (const Long& word : other.longs_) add_long({other.bytes_.data() + word.offset, word.size}, word.count);
}

void WordCounts::add_long(std::string_view word, int64_t count) {
  const uint64_t hash = hash64(word);
  size_t at = hash & long_mask_;
  for (; long_slots_[at] != 0; at = (at + 1) & long_mask_) {
    Long& known = longs_[long_slots_[at] - 1];
    if (known.hash == hash && known.size == word.size() &&
        std::memcmp(bytes_.data() + known.offset, word.data(), word.size()) == 0) {
      known.count += count;
      return;
    }
  }
  if (longs_.size() >= std::numeric_limits<uint32_t>::max() - 1) {
    throw DataError("[tokenizer] the text has more than 4 billion distinct pieces; train on a sample of it");
  }
  longs_.push_back({hash, bytes_.size(), word.size(), count});
  bytes_.insert(bytes_.end(), word.begin(), word.end());
  long_slots_[at] = static_cast<uint32_t>(longs_.size());
  if (longs_.size() * 2 > long_slots_.size()) grow_long();
}

void WordCounts::grow_short() {
  const HugeVector<Short> old = std::move(short_slots_);
  short_slots_.assign(old.size() * 2, {});
  short_mask_ = short_slots_.size() - 1;
  for (const Short& slot : old) {
    if (slot.key.high == 0) continue;
    size_t at = PieceCache::hash(slot.key) & short_mask_;
    while (short_slots_[at].key.high != 0) at = (at + 1) & short_mask_;
    short_slots_[at] = slot;
  }
}

void WordCounts::grow_long() {
  long_slots_.assign(long_slots_.size() * 4, 0);
  long_mask_ = long_slots_.size() - 1;
  for (size_t i = 0; i < longs_.size(); ++i) {
    size_t at = longs_[i].hash & long_mask_;
    while (long_slots_[at] != 0) at = (at + 1) & long_mask_;
    long_slots_[at] = static_cast<uint32_t>(i + 1);
  }
}

}  // namespace strata::data
