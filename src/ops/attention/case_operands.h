// Operands of the cases of attention and of the ops around it: four sequences of six tokens.
#pragma once

#include "ops/cases.h"

namespace strata::device::heads {

constexpr int64_t kRows = 24, kLength = 6, kSequences = kRows / kLength;
constexpr int64_t kHeadDim = 8, kQ = 64, kKv = 32;  // eight query heads, four of keys and values
constexpr int64_t kHeads = kQ / kHeadDim;

// At the sizes at which rates are measured.
constexpr int64_t kTimedHeadDim = 64, kTimedHeads = op_rows::kTimedWidth / kTimedHeadDim;

inline Operand qkv() {
  return op_rows::act({kRows, kQ + 2 * kKv}, {kQ, kKv, kKv});
}
inline Operand lse(int64_t of_heads = kHeads) {
  return op_rows::f32_of({kSequences, of_heads, kLength},
                         [](int64_t i) { return 2.5 + 0.1 * static_cast<double>(i % 7); });
}
inline Operand positions() {
  return op_rows::i32_by(kRows, [](int64_t i) { return static_cast<double>(i % kLength); });
}
// Some above all scores, some below.
inline Operand sinks() {
  return op_rows::f32_of({kHeads}, [](int64_t head) { return 0.7 * static_cast<double>(head % 5) - 1; });
}
// Each sequence has the documents [0, 4) and [4, 6).
inline Operand kv_begin() {
  return op_rows::i32_by(kRows, [](int64_t i) { return i % kLength >= 4 ? 4.0 : 0.0; });
}
inline Operand kv_end() {
  return op_rows::i32_by(kRows, [](int64_t i) { return i % kLength >= 4 ? 6.0 : 4.0; });
}
// A row reads the first or the second of its encoder's documents [0, 3) and [3, keys), or none.
inline Operand cross_begin() {
  return op_rows::i32_by(kRows, [](int64_t i) {
    const int64_t row = i % kLength;
    return row >= 4 ? -1.0 : row >= 2 ? 3.0 : 0.0;
  });
}
inline Operand cross_end(int64_t keys) {
  return op_rows::i32_by(kRows, [keys](int64_t i) {
    const int64_t row = i % kLength;
    return row >= 4 ? 0.0 : row >= 2 ? static_cast<double>(keys) : 3.0;
  });
}

}  // namespace strata::device::heads
