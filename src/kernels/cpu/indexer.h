// Rows of an indexer, which scores the keys that a row sees:
//
//   I[t, s] = scale · Σ_h weights[t, h] · relu(q[t, h] · k[s])
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

struct IndexerShape {
  int64_t sequences = 0;
  int64_t q_len = 0;            // rows of a sequence
  int64_t kv_len = 0;           // the most keys that a row may see
  int64_t heads = 1, size = 0;  // of q; all heads share keys of `size` columns
  int64_t count = 0;            // keys that are chosen
  float scale = 1.0f;
  DType dtype = DType::kF32;    // kF32, kBF16 or kF16: of q and k and their gradients
  int64_t q_pieces = 1;         // as AttentionShape (attention.h)
  int64_t kv_batch_stride = 0;  // elements between sequences in k
};

struct IndexerInputs {
  const void* q = nullptr;         // [sequences · q_len, heads · size]
  const void* k = nullptr;         // rows of `size` elements
  const float* weights = nullptr;  // [sequences · q_len, heads]
  // A row sees the keys from kv_begin [sequences · q_len], or 0, to its own place: q_start [sequences, q_pieces] are
  // those of the chunks' first rows. Null, for one chunk only: 0.
  const int32_t* kv_begin = nullptr;
  const int32_t* q_start = nullptr;
  const int32_t* kv_slot = nullptr;  // [sequences]: the one of k to read; null: the same
};

// Keys [begin, end) of its sequence that a row sees.
struct SeenKeys {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};
inline SeenKeys seen_keys(const IndexerShape& s, const IndexerInputs& in, int64_t sequence, int64_t i) {
  int64_t place = i;
  if (in.q_start != nullptr) {
    const int64_t piece = s.q_len / s.q_pieces;
    place = in.q_start[sequence * s.q_pieces + i / piece] + i % piece;
  }
  const int64_t end = std::min(place + 1, s.kv_len);
  const int64_t begin =
      in.kv_begin != nullptr ? std::max<int32_t>(0, in.kv_begin[sequence * s.q_len + i]) : 0;
  return {std::min(begin, end), end};
}

}  // namespace strata::cpu
