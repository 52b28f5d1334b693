// Token and learned position embeddings, and their gradient without atomics or scratch.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

struct EmbeddingShape {
  int64_t rows = 0, dim = 0;
  int64_t vocab = 0;      // rows of the table
  int64_t positions = 0;  // rows of the position table; 0: no such table
  DType dtype = DType::kF32;
  float scale = 1.0f;               // factor of the table's rows
  int64_t padding = -1;             // an id whose row gets no gradient; -1: none
  int64_t parts = 1;                // the table consists of this number of equal ranges of rows
  DType table_dtype = DType::kF32;  // or kBF16; its gradient is fp32
};

// With `vocab_start` i32[parts] the table holds `parts` ranges of a larger one, range p from row
// vocab_start[p] on. Ids outside all ranges yield zeros and get no gradient. Null: the table is whole.

// The table row of an id; -1: in none of the ranges.
inline int64_t row_of_id(const EmbeddingShape& shape, const int32_t* vocab_start, int32_t id) {
  if (vocab_start == nullptr) return id;
  const int64_t rows = shape.vocab / shape.parts;
  for (int64_t part = 0; part < shape.parts; ++part) {
    const int64_t row = int64_t{id} - vocab_start[part];
    if (row >= 0 && row < rows) return part * rows + row;
  }
  return -1;
}

// out[rows, dim] (dtype) = scale * table[ids[row]] + pos_table[positions[row]]. The table is of table_dtype,
// pos_table f32; pos_table and positions may be null. An id outside a whole table throws InternalError: loaders check ids.
void embedding_forward(const EmbeddingShape& shape, void* out, const int32_t* ids, const void* table,
                       const float* pos_table, const int32_t* positions,
                       const int32_t* vocab_start = nullptr);

// Sequences of `length` tokens: tokens[i] = max(ahead[i], 0). next[i] = ahead[i + 1], or -1 at the end of a
// sequence and if targets[i] is -1.
void targets_ahead(int64_t n, int64_t length, int32_t* tokens, int32_t* next, const int32_t* targets,
                   const int32_t* ahead);

// d_table[vocab, dim] = (accumulate ? d_table : 0) + scale * dy rows summed by id, in row order. Each task
// owns columns, so the bits do not depend on the number of threads. For the position table pass positions as
// ids and its size as vocab.
void embedding_backward(const EmbeddingShape& shape, float* d_table, const void* dy, const int32_t* ids,
                        bool accumulate, const int32_t* vocab_start = nullptr);

}  // namespace strata::cpu
