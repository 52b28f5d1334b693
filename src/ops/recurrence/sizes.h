// Sizes that the rules, the kernels and the bindings of recurrences share.
#pragma once

#include <vector>

#include "ops/recurrence/recurrence.h"

namespace strata::ops {

// The heads of mixed, and where their columns begin.
struct RecurrenceHeads {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int64_t q = 0, k = 0, v = 0;  // the first columns

  RecurrenceHeads() = default;
  RecurrenceHeads(const RecurrenceAttrs& attrs, const std::vector<int64_t>& segments)
      : key_dim(attrs.key_dim), value_dim(attrs.value_dim) {
    const bool delta = attrs.kind == RecurrenceKind::kDelta;
    key_heads = segments[1] / key_dim;
    value_heads = segments[delta ? 2 : 0] / value_dim;
    k = segments[0];
    q = delta ? 0 : segments[0] + segments[1];
    v = delta ? segments[0] + segments[1] : 0;
  }
  // Whether these segments are whole heads.
  bool fit(const std::vector<int64_t>& segments) const {
    const int64_t keys = key_heads * key_dim, values = value_heads * value_dim;
    const std::vector<int64_t> whole =
        v > 0 ? std::vector{keys, keys, values} : std::vector{values, keys, keys};
    return key_heads > 0 && value_heads > 0 && value_heads % key_heads == 0 && segments == whole;
  }
  int64_t value_width() const { return value_heads * value_dim; }
  int64_t state_width() const { return value_heads * key_dim * value_dim; }
  // Of the value head.
  int64_t key_head(int64_t value_head) const { return value_head * key_heads / value_heads; }
};

// Numbers of [M | N] of a head (RecurrenceMap).
inline int64_t map_width(const RecurrenceAttrs& attrs) {
  const int64_t m = attrs.kind == RecurrenceKind::kDelta ? attrs.key_dim * attrs.key_dim : 1;
  return m + attrs.key_dim * attrs.value_dim;
}

}  // namespace strata::ops
