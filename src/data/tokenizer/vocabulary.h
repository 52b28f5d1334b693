// Tokens by id and ids by token: one block of bytes, and an open-addressing index over it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

// Immutable once built. Ids need not be contiguous; an id without a token has the empty text and is absent.
class StringTable {
 public:
  struct Entry {
    std::string_view text;
    int32_t id;
  };
  StringTable() = default;
  explicit StringTable(const std::vector<Entry>& entries);  // of equal texts the last one counts

  std::optional<int32_t> find(std::string_view text) const;
  std::string_view text(int32_t id) const;
  bool has(int32_t id) const { return id >= 0 && id < id_end() && present_[static_cast<size_t>(id)]; }
  int32_t id_end() const { return static_cast<int32_t>(present_.size()); }  // one more than the largest id
  size_t size() const { return count_; }                                    // texts

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
  };
  std::string bytes_;
  std::vector<size_t> offsets_;  // by id: start and, in the next entry, end
  std::vector<bool> present_;
  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t count_ = 0;
};

}  // namespace strata::data
