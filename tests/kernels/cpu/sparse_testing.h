// Sparse attention, its choice of keys and its loss in fp64 by their formulas, and the kernels' results for the
// same operands.
#pragma once

#include <algorithm>
#include <numeric>

#include "kernels/cpu/array_testing.h"
#include "kernels/cpu/indexer_loss.h"
#include "kernels/cpu/key_selection.h"
#include "kernels/cpu/sparse_attention.h"

namespace strata::cpu::sparse_testing {

using testing::Array;
using Numbers = std::vector<double>;

inline hardware::DeviceSpec device_of(int threads) {
  hardware::DeviceSpec device;
  device.threads = threads;
  return device;
}

struct Sizes {
  int64_t sequences = 2, rows = 70, count = 11;
  int64_t heads = 4, kv_heads = 2, head_dim = 20, value_dim = 13;
  int64_t index_heads = 3, index_size = 18;
  int64_t document = 0;  // where the second document begins; 0: there is one
  int64_t keys() const { return sequences * rows; }
};

// Operands of all kernels. Keys and values are [k | v] rows.
struct Problem {
  Sizes n;
  DType dtype = DType::kF32;
  float scale = 0.3f, index_scale = 0.25f;
  double coefficient = 0.7;
  Array q{DType::kF32, 0}, kv{DType::kF32, 0}, dout{DType::kF32, 0}, index_q{DType::kF32, 0},
      index_k{DType::kF32, 0}, weights{DType::kF32, 0};
  std::vector<int32_t> kv_begin = {}, targets = {};

  int64_t kv_width() const { return n.kv_heads * (n.head_dim + n.value_dim); }
  int64_t k_width() const { return n.kv_heads * n.head_dim; }

  SparseAttentionShape attention() const {
    return {.sequences = n.sequences,
            .q_len = n.rows,
            .kv_len = n.rows,
            .count = n.count,
            .heads = n.heads,
            .kv_heads = n.kv_heads,
            .head_dim = n.head_dim,
            .value_dim = n.value_dim,
            .scale = scale,
            .dtype = dtype,
            .q_stride = n.heads * n.head_dim,
            .k_stride = kv_width(),
            .v_stride = kv_width(),
            .kv_batch_stride = n.rows * kv_width()};
  }
  IndexerShape indexer() const {
    return {.sequences = n.sequences,
            .q_len = n.rows,
            .kv_len = n.rows,
            .heads = n.index_heads,
            .size = n.index_size,
            .count = n.count,
            .scale = index_scale,
            .dtype = dtype,
            .kv_batch_stride = n.rows * n.index_size};
  }
  IndexerLossShape loss(bool all_keys) const {
    IndexerLossShape shape{.rows = indexer(), .coefficient = coefficient};
    if (!all_keys) return shape;
    shape.main_heads = n.heads;
    shape.main_kv_heads = n.kv_heads;
    shape.main_dim = n.head_dim;
    shape.main_k_stride = kv_width();
    shape.main_kv_batch_stride = n.rows * kv_width();
    shape.main_scale = scale;
    return shape;
  }
  IndexerInputs index() const {
    return {.q = index_q.data(),
            .k = index_k.data(),
            .weights = weights.f32(),
            .kv_begin = kv_begin.empty() ? nullptr : kv_begin.data()};
  }
  SparseAttentionInputs inputs(const std::vector<int32_t>& chosen) const {
    return {.q = q.data(),
            .k = kv.data(),
            .v = static_cast<const std::byte*>(kv.data()) + k_width() * size_of(dtype),
            .chosen = chosen.data()};
  }
  int64_t begin(int64_t row) const { return kv_begin.empty() ? 0 : kv_begin[static_cast<size_t>(row)]; }
};

inline Problem problem_of(const Sizes& n, DType dtype = DType::kF32, unsigned seed = 1) {
  Problem p{.n = n, .dtype = dtype};
  const int64_t rows = n.keys();
  p.q = Array::random(dtype, rows * n.heads * n.head_dim, seed);
  p.kv = Array::random(dtype, rows * p.kv_width(), seed + 1);
  p.dout = Array::random(dtype, rows * n.heads * n.value_dim, seed + 2);
  p.index_q = Array::random(dtype, rows * n.index_heads * n.index_size, seed + 3);
  p.index_k = Array::random(dtype, rows * n.index_size, seed + 4);
  p.weights = Array::random(DType::kF32, rows * n.index_heads, seed + 5, 1, 0.3);
  for (int64_t row = 0; row < rows; ++row) {
    if (n.document > 0)
      p.kv_begin.push_back(static_cast<int32_t>(row % n.rows >= n.document ? n.document : 0));
    p.targets.push_back(row % 5 == 3 ? -1 : 2);
  }
  return p;
}

// --- By the formulas

inline double index_dot(const Problem& p, int64_t row, int64_t head, int64_t key) {
  const int64_t size = p.n.index_size;
  double sum = 0;
  for (int64_t c = 0; c < size; ++c)
    sum += p.index_q[(row * p.n.index_heads + head) * size + c] * p.index_k[key * size + c];
  return sum;
}
inline double index_score(const Problem& p, int64_t row, int64_t key) {
  double sum = 0;
  for (int64_t h = 0; h < p.n.index_heads; ++h)
    sum += p.weights[row * p.n.index_heads + h] * std::max(0.0, index_dot(p, row, h, key));
  return static_cast<double>(p.index_scale) * sum;
}

inline std::vector<int32_t> expected_choice(const Problem& p) {
  std::vector<int32_t> chosen;
  for (int64_t row = 0; row < p.n.keys(); ++row) {
    const int64_t first = row / p.n.rows * p.n.rows;
    std::vector<std::pair<double, int64_t>> order;  // -score, place
    for (int64_t j = p.begin(row); j <= row % p.n.rows; ++j)
      order.emplace_back(-index_score(p, row, first + j), j);
    std::sort(order.begin(), order.end());
    order.resize(std::min(order.size(), static_cast<size_t>(p.n.count)));
    std::vector<int32_t> own;
    for (const auto& [score, place] : order) own.push_back(static_cast<int32_t>(place));
    std::sort(own.begin(), own.end());
    own.resize(static_cast<size_t>(p.n.count), -1);
    chosen.insert(chosen.end(), own.begin(), own.end());
  }
  return chosen;
}

// Keys of a row: those of a list, or all that it sees.
inline std::vector<int64_t> keys_of(const Problem& p, const std::vector<int32_t>* chosen, int64_t row) {
  std::vector<int64_t> keys;
  if (chosen == nullptr) {
    for (int64_t j = p.begin(row); j <= row % p.n.rows; ++j) keys.push_back(j);
    return keys;
  }
  for (int64_t i = row * p.n.count; i < (row + 1) * p.n.count; ++i)
    if ((*chosen)[static_cast<size_t>(i)] >= 0) keys.push_back((*chosen)[static_cast<size_t>(i)]);
  return keys;
}

struct Attended {
  Numbers out, lse, mass, dq, dkv;
};
// `rounded`: the output that the gradients are made from, if it was rounded.
inline Attended expected_attention(const Problem& p, const std::vector<int32_t>* chosen,
                                   const Array* rounded = nullptr) {
  const Sizes& n = p.n;
  const int64_t group = n.heads / n.kv_heads;
  Attended to;
  to.out.assign(static_cast<size_t>(p.dout.size()), 0);
  to.lse.assign(static_cast<size_t>(n.keys() * n.heads), -INFINITY);
  to.mass.assign(static_cast<size_t>(n.keys() * n.count), 0);
  to.dq.assign(static_cast<size_t>(p.q.size()), 0);
  to.dkv.assign(static_cast<size_t>(p.kv.size()), 0);
  const auto scale = static_cast<double>(p.scale);
  for (int64_t row = 0; row < n.keys(); ++row) {
    const std::vector<int64_t> keys = keys_of(p, chosen, row);
    const int64_t sequence = row / n.rows;
    for (int64_t head = 0; head < n.heads && !keys.empty(); ++head) {
      const int64_t q = (row * n.heads + head) * n.head_dim, o = (row * n.heads + head) * n.value_dim;
      const auto k_at = [&](int64_t j) {
        return (sequence * n.rows + j) * p.kv_width() + head / group * n.head_dim;
      };
      const auto v_at = [&](int64_t j) {
        return (sequence * n.rows + j) * p.kv_width() + p.k_width() + head / group * n.value_dim;
      };
      Numbers w;
      for (const int64_t j : keys) {
        double dot = 0;
        for (int64_t c = 0; c < n.head_dim; ++c) dot += p.q[q + c] * p.kv[k_at(j) + c];
        w.push_back(scale * dot);
      }
      const double most = *std::max_element(w.begin(), w.end());
      double sum = 0;
      for (double& one : w) sum += one = std::exp(one - most);
      to.lse[static_cast<size_t>((sequence * n.heads + head) * n.rows + row % n.rows)] = most + std::log(sum);
      for (size_t i = 0; i < keys.size(); ++i) {
        w[i] /= sum;
        if (chosen != nullptr) to.mass[static_cast<size_t>(row * n.count) + i] += w[i];
        for (int64_t c = 0; c < n.value_dim; ++c)
          to.out[static_cast<size_t>(o + c)] += w[i] * p.kv[v_at(keys[i]) + c];
      }
      double delta = 0;
      for (int64_t c = 0; c < n.value_dim; ++c)
        delta +=
            p.dout[o + c] * (rounded != nullptr ? (*rounded)[o + c] : to.out[static_cast<size_t>(o + c)]);
      for (size_t i = 0; i < keys.size(); ++i) {
        double dp = 0;
        for (int64_t c = 0; c < n.value_dim; ++c) {
          dp += p.dout[o + c] * p.kv[v_at(keys[i]) + c];
          to.dkv[static_cast<size_t>(v_at(keys[i]) + c)] += w[i] * p.dout[o + c];
        }
        const double ds = scale * w[i] * (dp - delta);
        for (int64_t c = 0; c < n.head_dim; ++c) {
          to.dq[static_cast<size_t>(q + c)] += ds * p.kv[k_at(keys[i]) + c];
          to.dkv[static_cast<size_t>(k_at(keys[i]) + c)] += ds * p.q[q + c];
        }
      }
    }
  }
  return to;
}

struct Losses {
  double loss = 0;
  Numbers dq, dk, dweights;
};
// `masses`: of the main attention, by row and its keys in order.
inline Losses expected_loss(const Problem& p, const std::vector<int32_t>* chosen,
                            const std::function<double(int64_t, size_t)>& masses, double seed = 1) {
  const Sizes& n = p.n;
  Losses to{.loss = 0,
            .dq = Numbers(static_cast<size_t>(p.index_q.size())),
            .dk = Numbers(static_cast<size_t>(p.index_k.size())),
            .dweights = Numbers(static_cast<size_t>(p.weights.size()))};
  for (int64_t row = 0; row < n.keys(); ++row) {
    const std::vector<int64_t> keys = keys_of(p, chosen, row);
    if (p.targets[static_cast<size_t>(row)] < 0) continue;
    Numbers scores, wanted;
    double total = 0, most = -INFINITY, sum = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      scores.push_back(index_score(p, row, row / n.rows * n.rows + keys[i]));
      wanted.push_back(masses(row, i));
      total += wanted.back();
      most = std::max(most, scores.back());
    }
    if (total == 0) continue;
    for (const double one : scores) sum += std::exp(one - most);
    const double log_sum = most + std::log(sum);
    for (size_t i = 0; i < keys.size(); ++i) {
      const double w = wanted[i] / total;
      if (w > 0) to.loss += p.coefficient * w * (std::log(w) - scores[i] + log_sum);
      const double d =
          seed * p.coefficient * static_cast<double>(p.index_scale) * (std::exp(scores[i] - log_sum) - w);
      const int64_t key = row / n.rows * n.rows + keys[i];
      for (int64_t h = 0; h < n.index_heads; ++h) {
        const double dot = index_dot(p, row, h, key), weight = p.weights[row * n.index_heads + h];
        if (dot <= 0) continue;
        to.dweights[static_cast<size_t>(row * n.index_heads + h)] += d * dot;
        for (int64_t c = 0; c < n.index_size; ++c) {
          const int64_t at_q = (row * n.index_heads + h) * n.index_size + c, at_k = key * n.index_size + c;
          to.dq[static_cast<size_t>(at_q)] += d * weight * p.index_k[at_k];
          to.dk[static_cast<size_t>(at_k)] += d * weight * p.index_q[at_q];
        }
      }
    }
  }
  return to;
}

// --- By the kernels, with scratch full of NaN

inline std::vector<int32_t> chosen_keys(const Problem& p, int threads = 1) {
  const KeySelectionPlan plan = plan_key_selection(p.indexer(), device_of(threads));
  std::vector<int32_t> chosen(static_cast<size_t>(p.n.keys() * p.n.count), -7);
  Array scratch = testing::scratch_of(plan.bytes);
  select_keys(plan, chosen.data(), p.index(), scratch.data());
  return chosen;
}

struct AttendedArrays {
  Array out, lse, mass, dq, dkv;
};
inline AttendedArrays attention_of(const Problem& p, const std::vector<int32_t>& chosen, int threads = 1) {
  const SparseAttentionPlan plan = plan_sparse_attention(p.attention(), device_of(threads));
  AttendedArrays to{Array(p.dtype, p.dout.size()), Array(DType::kF32, p.n.keys() * p.n.heads),
                    Array(DType::kF32, p.n.keys() * p.n.count), Array(p.dtype, p.q.size()),
                    Array(p.dtype, p.kv.size())};
  Array scratch = testing::scratch_of(plan.forward_bytes), again = testing::scratch_of(plan.backward_bytes);
  sparse_attention_forward(plan, to.out.data(), to.lse.f32(), to.mass.f32(), p.inputs(chosen),
                           scratch.data());
  sparse_attention_backward(plan,
                            {.dq = to.dq.data(),
                             .dk = to.dkv.data(),
                             .dv = static_cast<std::byte*>(to.dkv.data()) + p.k_width() * size_of(p.dtype)},
                            p.dout.data(), to.out.data(), to.lse.f32(), p.inputs(chosen), again.data());
  return to;
}

struct LossArrays {
  double loss = 0;
  Array dq, dk, dweights;
};
// Over all keys if `chosen` is null, with lse of dense attention; otherwise with masses.
inline LossArrays loss_of(const Problem& p, const std::vector<int32_t>* chosen, const Array& mass_or_lse,
                          float seed = 1, int threads = 1) {
  const IndexerLossPlan plan = plan_indexer_loss(p.loss(chosen == nullptr), device_of(threads));
  LossArrays to{.loss = 0,
                .dq = Array(p.dtype, p.index_q.size()),
                .dk = Array(p.dtype, p.index_k.size()),
                .dweights = Array(DType::kF32, p.weights.size())};
  Array scratch = testing::scratch_of(plan.forward_bytes), again = testing::scratch_of(plan.backward_bytes);
  IndexerLossInputs in{.rows = p.index(), .targets = p.targets.data()};
  if (chosen != nullptr) {
    in.chosen = chosen->data();
    in.mass = mass_or_lse.f32();
  } else {
    in.main_q = p.q.data();
    in.main_k = p.kv.data();
    in.main_lse = mass_or_lse.f32();
  }
  indexer_loss_forward(plan, &to.loss, in, true, scratch.data());
  indexer_loss_backward(plan, {.dq = to.dq.data(), .dk = to.dk.data(), .dweights = to.dweights.f32()}, seed,
                        in, again.data());
  return to;
}

inline Array f32_array(const Numbers& values) {
  Array to(DType::kF32, std::ssize(values));
  for (int64_t i = 0; i < to.size(); ++i) to.set(i, values[static_cast<size_t>(i)]);
  return to;
}

}  // namespace strata::cpu::sparse_testing
