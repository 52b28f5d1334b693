// The indexer's loss: over all keys block by block, over chosen keys row by row.
#include "kernels/cpu/indexer_loss_tasks.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/attention_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/indexer_loss_tasks.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for every target

#include "kernels/cpu/indexer_scores-inl.h"
#include "kernels/cpu/recurrence_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::indexer::HWY_NAMESPACE {
namespace {

namespace matrices = strata::cpu::recurrence::HWY_NAMESPACE;
using attention::Start;
using tiles::tile_product;

constexpr float kLog2e = 1.44269504088896341f;

HWY_INLINE Vector at(const float* p) {
  return hn::LoadU(F32(), p);
}
HWY_INLINE void put(float* p, Vector v) {
  hn::StoreU(v, F32(), p);
}

// log Σ_j exp(x[j]) for j < n; x has whole vectors, whose numbers from n on are -inf.
HWY_INLINE float log_sum_exp(const float* x, int64_t n) {
  const F32 d;
  Vector most = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t j = 0; j < n; j += kLanes) most = hn::Max(most, at(x + j));
  most = hn::MaxOfLanes(d, most);
  Vector sum = hn::Zero(d);
  for (int64_t j = 0; j < n; j += kLanes)
    sum = hn::Add(sum, tiles::exp2(hn::Mul(hn::Sub(at(x + j), most), hn::Set(d, kLog2e))));
  return hn::GetLane(most) + std::log(hn::GetLane(hn::SumOfLanes(d, sum)));
}

// KL(p ‖ softmax(scores)) with p = mass / total, over n keys.
double divergence(const float* mass, const float* scores, int64_t n, float total, float log_sum) {
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) {
    const float p = mass[j] / total;
    if (p != 0.0f) sum += static_cast<double>(p) * static_cast<double>(std::log(p) - scores[j] + log_sum);
  }
  return sum;
}

// scores[j] = factor · (softmax(scores) - mass / total), in whole vectors.
HWY_INLINE void score_gradients(float* scores, const float* mass, int64_t n, float total, float log_sum,
                                float factor) {
  const F32 d;
  const Vector f = hn::Set(d, factor), share = hn::Set(d, -factor / total);
  for (int64_t j = 0; j < n; j += kLanes) {
    const Vector q = tiles::exp2(hn::Mul(hn::Sub(at(scores + j), hn::Set(d, log_sum)), hn::Set(d, kLog2e)));
    put(scores + j, hn::MulAdd(share, at(mass + j), hn::Mul(f, q)));
  }
}

// Turns the dots of a head and n keys into the gradients of these, ds · weight for dots above 0; returns the sum
// of ds · relu(dot). In whole vectors.
HWY_INLINE float dot_gradients(float* dots, const float* ds, int64_t n, float weight) {
  const F32 d;
  const Vector w = hn::Set(d, weight);
  Vector sum = hn::Zero(d);
  for (int64_t j = 0; j < n; j += kLanes) {
    const Vector dot = at(dots + j), given = at(ds + j);
    const auto above = hn::Gt(dot, hn::Zero(d));
    sum = hn::MulAdd(given, hn::IfThenElseZero(above, dot), sum);
    put(dots + j, hn::IfThenElseZero(above, hn::Mul(w, given)));
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// --- All keys

struct Block {
  int64_t sequence, in_sequence, first, rows;
  Block(const LossCall& call, int64_t of_sequence, int64_t block)
      : sequence(of_sequence),
        in_sequence(block * kLossRows),
        first(sequence * call.shape.rows.q_len + in_sequence),
        rows(std::min(kLossRows, call.shape.rows.q_len - in_sequence)) {}
};

using Seen = SeenByRows<kLossRows>;

// Scores of the main attention's heads, as masses: sums over heads of exp(score - lse).
HWY_INLINE void add_masses(const LossCall& call, const Block& block, const Seen& seen, int64_t base,
                           const AllKeysScratch& w) {
  const F32 d;
  const IndexerLossShape& shape = call.shape;
  const int64_t size = shape.main_dim, stride = tile_stride<float>(size),
                group = shape.main_heads / shape.main_kv_heads;
  for (int64_t r = 0; r < kLossRows; ++r) std::fill_n(w.mass + r * w.score_stride, w.score_stride, 0.0f);
  HWY_ALIGN float scores[kTile * kPanel];
  for (int64_t head = 0; head < shape.main_heads; ++head) {
    tiles::pack_rows(w.main_q, stride, call.in.main_q, shape.rows.dtype,
                     (block.first * shape.main_heads + head) * size, shape.main_heads * size, block.rows,
                     kLossRows, size, shape.main_scale * kLog2e);
    const float* const lse =
        call.in.main_lse + (block.sequence * shape.main_heads + head) * shape.rows.q_len + block.in_sequence;
    for (int64_t key = base; key < seen.end; key += kKeys) {
      const int64_t keys = std::min(kKeys, seen.end - key);
      tiles::pack_transposed(
          w.keys_t, call.in.main_k, shape.rows.dtype,
          block.sequence * shape.main_kv_batch_stride + key * shape.main_k_stride + head / group * size,
          shape.main_k_stride, keys, size);
      for (int64_t row = 0; row < block.rows; row += kTile) {
        const SeenKeys of_tile = seen.of_tile(row);
        for (int64_t j = 0; j < keys; j += kPanel) {
          if (key + j >= of_tile.end || key + j + kPanel <= of_tile.begin) continue;
          tile_product<2, false, Start::kZero>(size, w.main_q + row * stride, stride, w.keys_t + j * size,
                                               kPanel, scores, kPanel, nullptr);
          for (int64_t m = 0; m < std::min(kTile, block.rows - row); ++m) {
            if (seen.keys[row + m].count() == 0) continue;
            const Vector of_row = hn::Set(d, lse[row + m] * kLog2e);
            float* const to = w.mass + (row + m) * w.score_stride + key - base + j;
            for (int64_t v = 0; v < kPanel; v += kLanes)
              put(to + v, hn::Add(at(to + v), tiles::exp2(hn::Sub(at(scores + m * kPanel + v), of_row))));
          }
        }
      }
    }
  }
}

// Scores, masses and their sums of the rows of a block, from key `base` on: outside a row's keys -inf and 0.
HWY_INLINE void load_block(const LossCall& call, const Block& block, const Seen& seen, int64_t base,
                           const AllKeysScratch& w) {
  const F32 d;
  const IndexerShape& s = call.shape.rows;
  score_block(s, call.in.rows, block.sequence, block.first, block.rows, seen, base, w);
  add_masses(call, block, seen, base, w);
  const int64_t width = align_up(seen.end - base, kKeys);
  for (int64_t r = 0; r < kLossRows; ++r) {
    const SeenKeys& keys = seen.keys[r];
    const bool counts = r < block.rows && keys.count() > 0 && call.in.targets[block.first + r] >= 0;
    const int64_t begin = counts ? keys.begin - base : width, end = counts ? keys.end - base : width;
    float *const scores = w.scores + r * w.score_stride, *const mass = w.mass + r * w.score_stride;
    for (const auto& [from, to] : {std::pair(int64_t{0}, begin), std::pair(end, width)}) {
      std::fill(scores + from, scores + to, -std::numeric_limits<float>::infinity());
      std::fill(mass + from, mass + to, 0.0f);
    }
    Vector sum = hn::Zero(d);
    for (int64_t j = 0; j < width; j += kLanes) sum = hn::Add(sum, at(mass + j));
    w.totals[r] = hn::GetLane(hn::SumOfLanes(d, sum));
    w.log_sums[r] = counts ? log_sum_exp(scores, width) : 0.0f;
  }
}

HWY_INLINE double loss_of_block(const LossCall& call, const Block& block, const AllKeysScratch& w) {
  const Seen seen(call.shape.rows, call.in.rows, block.sequence, block.in_sequence, block.rows);
  const int64_t base = seen.begin / kKeys * kKeys;
  load_block(call, block, seen, base, w);
  double sum = 0;
  for (int64_t r = 0; r < block.rows; ++r) {
    if (w.totals[r] == 0.0f) continue;
    sum += divergence(w.mass + r * w.score_stride, w.scores + r * w.score_stride, seen.keys[r].end - base,
                      w.totals[r], w.log_sums[r]);
  }
  return sum;
}

// Adds to the keys' gradients at dkeys.
HWY_INLINE void gradients_of_block(const LossCall& call, const Block& block, float* dkeys,
                                   const AllKeysScratch& w) {
  const IndexerShape& s = call.shape.rows;
  const Seen seen(s, call.in.rows, block.sequence, block.in_sequence, block.rows);
  const int64_t base = seen.begin / kKeys * kKeys, width = align_up(seen.end - base, kKeys);
  const int64_t row_stride = tile_stride<float>(s.size), key_columns = call.key_columns();
  load_block(call, block, seen, base, w);
  const auto factor = static_cast<float>(call.shape.coefficient * static_cast<double>(call.seed));
  for (int64_t r = 0; r < kLossRows; ++r) {
    float* const scores = w.scores + r * w.score_stride;
    if (w.totals[r] == 0.0f) {
      std::fill_n(scores, width, 0.0f);
    } else {
      score_gradients(scores, w.mass + r * w.score_stride, width, w.totals[r], w.log_sums[r], factor);
    }
  }
  std::fill_n(w.dq, s.heads * w.head_stride, 0.0f);
  std::fill_n(w.dweights, kLossRows * s.heads, 0.0f);
  for (int64_t key = base; key < seen.end; key += kKeys) {
    const int64_t keys = std::min(kKeys, seen.end - key),
                  offset = block.sequence * s.kv_batch_stride + key * s.size;
    tiles::pack_transposed(w.keys_t, call.in.rows.k, s.dtype, offset, s.size, keys, s.size);
    tiles::pack_rows(w.keys, row_stride, call.in.rows.k, s.dtype, offset, s.size, keys, kKeys, s.size, 1.0f);
    const int64_t panels = align_up(keys, kPanel);
    for (int64_t h = 0; h < s.heads; ++h) {
      const float* const q = w.q + h * w.head_stride;
      for (int64_t row = 0; row < kLossRows; row += kTile) {
        for (int64_t j = 0; j < panels; j += kPanel)
          tile_product<2, false, Start::kZero>(s.size, q + row * row_stride, row_stride,
                                               w.keys_t + j * s.size, kPanel, w.dots + row * kScoreStride + j,
                                               kScoreStride, nullptr);
      }
      for (int64_t r = 0; r < kLossRows; ++r) {
        const float* const ds = w.scores + r * w.score_stride + key - base;
        std::fill_n(w.dots + r * kScoreStride + panels, kKeys - panels, 0.0f);
        w.dweights[r * s.heads + h] +=
            dot_gradients(w.dots + r * kScoreStride, ds, panels, w.weights[r * s.heads + h]);
      }
      for (int64_t c = 0; c < s.size; c += kPanel) {
        const bool both = c + kLanes < s.size;
        for (int64_t row = 0; row < kLossRows; row += kTile) {
          const float* const a = w.dots + row * kScoreStride;
          float* const to = w.dq + h * w.head_stride + row * row_stride + c;
          if (both) {
            tile_product<2, false, Start::kSum>(keys, a, kScoreStride, w.keys + c, row_stride, to, row_stride,
                                                nullptr);
          } else {
            tile_product<1, false, Start::kSum>(keys, a, kScoreStride, w.keys + c, row_stride, to, row_stride,
                                                nullptr);
          }
        }
        for (int64_t j = 0; j < kKeys; j += kTile) {
          float* const to = dkeys + (key + j) * key_columns + c;
          if (both) {
            tile_product<2, true, Start::kSum>(kLossRows, w.dots + j, kScoreStride, q + c, row_stride, to,
                                               key_columns, nullptr);
          } else {
            tile_product<1, true, Start::kSum>(kLossRows, w.dots + j, kScoreStride, q + c, row_stride, to,
                                               key_columns, nullptr);
          }
        }
      }
    }
  }
  for (int64_t r = 0; r < block.rows; ++r) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t index = (block.first + r) * s.heads + h;
      tiles::unpack_row(call.to.dq, s.dtype, index * s.size, w.dq + h * w.head_stride + r * row_stride,
                        s.size, 1.0f);
      call.to.dweights[index] = s.scale * w.dweights[r * s.heads + h];
    }
  }
}

// --- Chosen keys

// The packed operands, dots, scores and sums of one row.
struct ChosenRow {
  const int32_t* chosen;
  const float* mass;
  int64_t n = 0;  // keys of the list
  float total = 0, log_sum = 0;
};
HWY_INLINE ChosenRow load_row(const LossCall& call, int64_t row, const ChosenScratch& w) {
  const F32 d;
  const IndexerShape& s = call.shape.rows;
  ChosenRow one{call.in.chosen + row * s.count, call.in.mass + row * s.count};
  while (one.n < s.count && one.chosen[one.n] >= 0) ++one.n;
  for (int64_t j = 0; j < one.n; ++j) one.total += one.mass[j];
  if (one.total == 0.0f) return one;
  const int64_t stride = tile_stride<float>(s.size), columns = padded_columns<float>(s.size);
  const int64_t padded = align_up(one.n, 16), origin = row / s.q_len * s.kv_batch_stride;
  tiles::pack_rows(w.q, stride, call.in.rows.q, s.dtype, row * s.heads * s.size, s.size, s.heads, w.heads,
                   s.size, 1.0f);
  for (int64_t j = 0; j < one.n; ++j)
    tiles::pack_rows(w.keys + j * stride, stride, call.in.rows.k, s.dtype, origin + one.chosen[j] * s.size,
                     s.size, 1, 1, s.size, 1.0f);
  for (int64_t j = one.n; j < padded; ++j) std::fill_n(w.keys + j * stride, columns, 0.0f);
  matrices::transpose(w.keys_t, w.pair_stride, w.keys, stride, padded, columns);
  matrices::multiply_rows(w.heads, padded, columns, {w.q, stride}, {w.keys_t, w.pair_stride},
                          {w.dots, w.pair_stride});
  const float* const weights = call.in.rows.weights + row * s.heads;
  for (int64_t j = 0; j < padded; j += kLanes) {
    Vector sum = hn::Zero(d);
    for (int64_t h = 0; h < s.heads; ++h)
      sum = hn::MulAdd(hn::Set(d, s.scale * weights[h]),
                       hn::Max(hn::Zero(d), at(w.dots + h * w.pair_stride + j)), sum);
    put(w.scores + j, sum);
  }
  std::fill(w.scores + one.n, w.scores + padded, -std::numeric_limits<float>::infinity());
  one.log_sum = log_sum_exp(w.scores, padded);
  return one;
}

HWY_INLINE void gradients_of_row(const LossCall& call, int64_t row, float* dkeys, const ChosenScratch& w) {
  const IndexerShape& s = call.shape.rows;
  const int64_t stride = tile_stride<float>(s.size), columns = padded_columns<float>(s.size);
  const ChosenRow one = call.in.targets[row] >= 0 ? load_row(call, row, w) : ChosenRow{};
  if (one.total == 0.0f) {
    std::fill_n(w.dq, columns, 0.0f);
    for (int64_t h = 0; h < s.heads; ++h) {
      tiles::unpack_row(call.to.dq, s.dtype, (row * s.heads + h) * s.size, w.dq, s.size, 1.0f);
      call.to.dweights[row * s.heads + h] = 0.0f;
    }
    return;
  }
  const int64_t padded = align_up(one.n, 16);
  const auto factor = static_cast<float>(call.shape.coefficient * static_cast<double>(call.seed));
  for (int64_t j = 0; j < one.n; ++j)
    w.scores[j] = factor * (std::exp(w.scores[j] - one.log_sum) - one.mass[j] / one.total);
  std::fill(w.scores + one.n, w.scores + padded, 0.0f);
  for (int64_t h = 0; h < s.heads; ++h)
    call.to.dweights[row * s.heads + h] =
        s.scale * dot_gradients(w.dots + h * w.pair_stride, w.scores, padded,
                                s.scale * call.in.rows.weights[row * s.heads + h]);
  for (int64_t h = s.heads; h < w.heads; ++h) std::fill_n(w.dots + h * w.pair_stride, padded, 0.0f);
  matrices::multiply_rows(w.heads, columns, padded, {w.dots, w.pair_stride}, {w.keys, stride},
                          {w.dq, stride});
  matrices::multiply_across(padded, columns, s.heads, {w.dots, w.pair_stride}, {w.q, stride},
                            {w.dkeys, stride});
  for (int64_t h = 0; h < s.heads; ++h)
    tiles::unpack_row(call.to.dq, s.dtype, (row * s.heads + h) * s.size, w.dq + h * stride, s.size, 1.0f);
  for (int64_t j = 0; j < one.n; ++j)
    tiles::add_scaled(dkeys + one.chosen[j] * columns, w.dkeys + j * stride, 1.0f, columns);
}

}  // namespace

HWY_ATTR void loss_of(const LossCall& call, int64_t task, void* memory) {
  const Block block(call, task / call.blocks(), task % call.blocks());
  Carver carver(memory);
  if (call.shape.all_keys()) {
    const AllKeysScratch w(carver, call.shape, false);
    call.sums[task] = loss_of_block(call, block, w);
    return;
  }
  const ChosenScratch w(carver, call.shape.rows, false);
  double sum = 0;
  for (int64_t row = block.first; row < block.first + block.rows; ++row) {
    if (call.in.targets[row] < 0) continue;
    const ChosenRow one = load_row(call, row, w);
    if (one.total != 0.0f) sum += divergence(one.mass, w.scores, one.n, one.total, one.log_sum);
  }
  call.sums[task] = sum;
}

HWY_ATTR void gradients_of(const LossCall& call, int64_t task, void* memory) {
  Carver carver(memory);
  const int64_t sequence = task / call.parts;
  float* const dkeys = call.dkeys + task * call.keys_of_part();
  std::fill_n(dkeys, call.keys_of_part(), 0.0f);
  for (int64_t i = task % call.parts; i < call.blocks(); i += call.parts) {
    const Block block(call, sequence, i);
    Carver again = carver;
    if (call.shape.all_keys()) {
      gradients_of_block(call, block, dkeys, AllKeysScratch(again, call.shape, true));
      continue;
    }
    const ChosenScratch w(again, call.shape.rows, true);
    for (int64_t row = block.first; row < block.first + block.rows; ++row)
      gradients_of_row(call, row, dkeys, w);
  }
}

HWY_ATTR void sum_keys(const LossCall& call, int64_t sequence, int64_t first, int64_t keys) {
  const IndexerShape& s = call.shape.rows;
  const int64_t columns = call.key_columns();
  float* const sums = call.dkeys + sequence * call.parts * call.keys_of_part();
  for (int64_t key = first; key < first + keys; ++key) {
    float* const row = sums + key * columns;
    for (int64_t part = 1; part < call.parts; ++part)
      tiles::add_scaled(row, row + part * call.keys_of_part(), 1.0f, columns);
    tiles::unpack_row(call.to.dk, s.dtype, sequence * s.kv_batch_stride + key * s.size, row, s.size, 1.0f);
  }
}

}  // namespace strata::cpu::indexer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::indexer {
HWY_EXPORT(loss_of);
HWY_EXPORT(gradients_of);
HWY_EXPORT(sum_keys);

void loss_task(const LossCall& call, int64_t task, void* memory) {
  HWY_DYNAMIC_DISPATCH(loss_of)(call, task, memory);
}
void loss_gradient_task(const LossCall& call, int64_t task, void* memory) {
  HWY_DYNAMIC_DISPATCH(gradients_of)(call, task, memory);
}
void sum_key_gradients(const LossCall& call, int64_t sequence, int64_t first, int64_t keys) {
  HWY_DYNAMIC_DISPATCH(sum_keys)(call, sequence, first, keys);
}

}  // namespace strata::cpu::indexer
#endif
