#include "data/tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>

#include "base/hash.h"

namespace strata::data {

StringTable::StringTable(const std::vector<Entry>& entries) {
  int32_t largest = -1;
  for (const Entry& entry : entries) largest = std::max(largest, entry.id);
  const size_t ids = static_cast<size_t>(largest) + 1;
  std::vector<const Entry*> by_id(ids, nullptr);
  for (const Entry& entry : entries) by_id[static_cast<size_t>(entry.id)] = &entry;
  present_.assign(ids, false);
  offsets_.assign(ids + 1, 0);
  size_t total = 0;
  for (size_t id = 0; id < ids; ++id) {
    if (by_id[id] != nullptr) total += by_id[id]->text.size();
  }
  bytes_.reserve(total);
  for (size_t id = 0; id < ids; ++id) {
    offsets_[id] = bytes_.size();
    if (by_id[id] == nullptr) continue;
    bytes_ += by_id[id]->text;
    present_[id] = true;
  }
  offsets_[ids] = bytes_.size();

  slots_.resize(std::bit_ceil(std::max<size_t>(16, ids * 2)));
  mask_ = slots_.size() - 1;
  for (const Entry& entry : entries) {
    if (by_id[static_cast<size_t>(entry.id)] != &entry) continue;
    const uint64_t hash = hash64(entry.text);
    size_t at = hash & mask_;
    const auto tag = static_cast<uint32_t>(hash >> 32);
    while (slots_[at].id >= 0 && !(slots_[at].hash == tag && text(slots_[at].id) == entry.text)) {
      at = (at + 1) & mask_;
    }
    if (slots_[at].id < 0) ++count_;
    slots_[at] = {tag, entry.id};
  }
}

std::optional<int32_t> StringTable::find(std::string_view wanted) const {
  if (slots_.empty()) return std::nullopt;
  const uint64_t hash = hash64(wanted);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t at = hash & mask_; slots_[at].id >= 0; at = (at + 1) & mask_) {
    if (slots_[at].hash == tag && text(slots_[at].id) == wanted) return slots_[at].id;
  }
  return std::nullopt;
}

std::string_view StringTable::text(int32_t id) const {
  if (!has(id)) return {};
  const auto i = static_cast<size_t>(id);
  return std::string_view(bytes_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

}  // namespace strata::data
