// Look-up of token (and learned position) embeddings, and its gradient without atomics or scratch.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

struct EmbeddingShape {
  int64_t rows = 0, dim = 0;
  int64_t vocab = 0;      // rows of the table
  int64_t positions = 0;  // rows of the position table, 0 where there is none
  DType dtype = DType::kF32;
  float scale = 1.0f;    // of the rows of the table
  int64_t padding = -1;  // an id whose row gets no gradient; -1: none
  int64_t parts = 1;     // of equal size, that the table's rows are
};

// With `vocab_start` i32[parts] the table has parts of a larger one, each from its row vocab_start[p] on; ids
// in none of them give zeros and get no gradient. Null: the table is whole.

// Where the row of an id lies in the table; -1: in none of its parts.
inline int64_t row_of_id(const EmbeddingShape& shape, const int32_t* vocab_start, int32_t id) {
  if (vocab_start == nullptr) return id;
  const int64_t rows = shape.vocab / shape.parts;
  for (int64_t part = 0; part < shape.parts; ++part) {
    const int64_t row = int64_t{id} - vocab_start[part];
    if (row >= 0 && row < rows) return part * rows + row;
  }
  return -1;
}

// out[rows, dim] (dtype) = scale * table[ids[row]] + pos_table[positions[row]], tables in f32; pos_table and
// positions may be null. An id outside a whole table throws InternalError: loaders check ids.
void embedding_forward(const EmbeddingShape& shape, void* out, const int32_t* ids, const float* table,
                       const float* pos_table, const int32_t* positions,
                       const int32_t* vocab_start = nullptr);

// Of sequences of `length`: tokens[i] = max(ahead[i], 0), next[i] = ahead[i + 1] where i is not a sequence's
// last and targets[i] no -1, else -1.
void targets_ahead(int64_t n, int64_t length, int32_t* tokens, int32_t* next, const int32_t* targets,
                   const int32_t* ahead);

// d_table[vocab, dim] = (accumulate ? d_table : 0) + scale * dy rows summed by id, in row order: each task
// owns columns, so the bits do not depend on threads. For the position table pass positions as ids and its
// size as vocab.
void embedding_backward(const EmbeddingShape& shape, float* d_table, const void* dy, const int32_t* ids,
                        bool accumulate, const int32_t* vocab_start = nullptr);

}  // namespace strata::cpu
