#include <algorithm>
#include <cmath>
#include <functional>

#include "base/parallel.h"
#include "kernels/reference/call.h"

namespace strata::reference {
namespace {

// Sizes of an attention over qkv [N, (h + 2 kv) · hd].
struct Heads {
  int64_t head_dim, heads, kv_heads, length, sequences, row;
  int64_t window;
  double scale, softcap;

  Heads(const Array& qkv, const graph::Attrs& attrs)
      : head_dim(attrs.integer("head_dim")),
        heads(qkv.segments[0] / head_dim),
        kv_heads(qkv.segments[1] / head_dim),
        length(attrs.integer("sequence_length")),
        sequences(qkv.shape[0] / length),
        row(qkv.shape[1]),
        window(attrs.integer("window")),
        scale(attrs.real("scale")),
        softcap(attrs.real("softcap")) {}

  int64_t kv_head(int64_t head) const { return head / (heads / kv_heads); }
  // The first key that a row at `position` of its sequence sees, of those from `begin`.
  int64_t first_key(int64_t begin, int64_t position) const {
    return window > 0 ? std::max(begin, position - window + 1) : begin;
  }
  double score(double product) const {
    const double scaled = scale * product;
    return softcap > 0 ? softcap * std::tanh(scaled / softcap) : scaled;
  }
  double slope(double product) const {
    const double bend = softcap > 0 ? std::tanh(scale * product / softcap) : 0;
    return scale * (1 - bend * bend);
  }
  // Where a head's part begins in token n's row of qkv.
  int64_t q(int64_t n, int64_t head) const { return n * row + head * head_dim; }
  int64_t k(int64_t n, int64_t kv) const { return n * row + (heads + kv) * head_dim; }
  int64_t v(int64_t n, int64_t kv) const { return n * row + (heads + kv_heads + kv) * head_dim; }
};

double dot(const Array& a, int64_t at_a, const Array& b, int64_t at_b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a.at(at_a + i) * b.at(at_b + i);
  return sum;
}

// One row of attention: scores of keys [begin, end) at key_at(j), mixed values from value_at(j) into `out` at
// `to`. Gives the logarithm of the sum of exponentials.
template <typename KeyAt>
double attend(const Heads& heads, const Array& queries, int64_t query, const Array& keys, const Array& values,
              int64_t begin, int64_t end, const KeyAt& key_at, const KeyAt& value_at, const Array& out,
              int64_t to) {
  std::vector<double> weights;
  for (int64_t j = begin; j < end; ++j)
    weights.push_back(heads.score(dot(queries, query, keys, key_at(j), heads.head_dim)));
  const double highest = *std::max_element(weights.begin(), weights.end());
  double total = 0;
  for (double& weight : weights) total += weight = std::exp(weight - highest);
  for (int64_t d = 0; d < heads.head_dim; ++d) {
    double mixed = 0;
    for (int64_t j = begin; j < end; ++j)
      mixed += weights[static_cast<size_t>(j - begin)] * values.at(value_at(j) + d);
    out.put(to + d, mixed / total);
  }
  return highest + std::log(total);
}

}  // namespace

// (qkv, table, positions) → qkv
void rope(const Call& call) {
  const Array &qkv = call.in[0], &table = call.in[1], &out = call.out[0];
  const int64_t head_dim = call.attrs.integer("head_dim"), half = table.shape[1], row = qkv.shape[1];
  const int64_t heads = (qkv.segments[0] + qkv.segments[1]) / head_dim;
  const double turn = call.attrs.integer("inverse") != 0 ? -1 : 1;
  parallel_for(qkv.shape[0], [&](int64_t n) {
    const int64_t angles = call.in[2].index_at(n) * half * 2;
    if (out.data != qkv.data) {
      for (int64_t c = 0; c < row; ++c) out.put(n * row + c, qkv.at(n * row + c));
    }
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < half; ++i) {
        const int64_t first = n * row + head * head_dim + i, second = first + half;
        const double cosine = table.at(angles + 2 * i), sine = turn * table.at(angles + 2 * i + 1);
        const double a = qkv.at(first), b = qkv.at(second);
        out.put(first, a * cosine - b * sine);
        out.put(second, b * cosine + a * sine);
      }
    }
  });
}

// (qkv, kv_begin?) → out, lse
void attention(const Call& call) {
  const Array &qkv = call.in[0], &begins = call.in[1], &out = call.out[0], &lse = call.out[1];
  const Heads heads(qkv, call.attrs);
  parallel_for(heads.sequences * heads.heads, [&](int64_t task) {
    const int64_t head = task % heads.heads, first = task / heads.heads * heads.length;
    using At = std::function<int64_t(int64_t)>;
    const At key = [&](int64_t j) { return heads.k(first + j, heads.kv_head(head)); };
    const At value = [&](int64_t j) { return heads.v(first + j, heads.kv_head(head)); };
    for (int64_t t = 0; t < heads.length; ++t) {
      const int64_t n = first + t;
      lse.put(task * heads.length + t,
              attend(heads, qkv, heads.q(n, head), qkv, qkv,
                     heads.first_key(begins.present() ? begins.index_at(n) : 0, t), t + 1, key, value, out,
                     (n * heads.heads + head) * heads.head_dim));
    }
  });
}

// (dout, out, lse, qkv, kv_begin?) → dqkv. With p = exp(scale q·k − lse): dv += p dout,
// ds = p (dout·v − dout·out), dq += scale ds k, dk += scale ds q.
void attention_grad(const Call& call) {
  const Array &dout = call.in[0], &out = call.in[1], &lse = call.in[2], &qkv = call.in[3];
  const Array &begins = call.in[4], &dqkv = call.out[0];
  const Heads heads(qkv, call.attrs);
  const int64_t hd = heads.head_dim, group = heads.heads / heads.kv_heads;
  parallel_for(heads.sequences * heads.kv_heads, [&](int64_t task) {
    const int64_t kv = task % heads.kv_heads, sequence = task / heads.kv_heads;
    const int64_t first = sequence * heads.length;
    std::vector<double> dk(static_cast<size_t>(heads.length * hd)), dv(dk.size()),
        dq(static_cast<size_t>(hd));
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
      for (int64_t t = 0; t < heads.length; ++t) {
        const int64_t n = first + t, query = heads.q(n, head), at = (n * heads.heads + head) * hd;
        const double row_lse = lse.at((sequence * heads.heads + head) * heads.length + t);
        const double drift = dot(dout, at, out, at, hd);
        std::fill(dq.begin(), dq.end(), 0.0);
        for (int64_t j = heads.first_key(begins.present() ? begins.index_at(n) : 0, t); j <= t; ++j) {
          const int64_t key = heads.k(first + j, kv), value = heads.v(first + j, kv);
          const double product = dot(qkv, query, qkv, key, hd);
          const double p = std::exp(heads.score(product) - row_lse);
          const double ds = heads.slope(product) * p * (dot(dout, at, qkv, value, hd) - drift);
          for (int64_t d = 0; d < hd; ++d) {
            const auto to = static_cast<size_t>(j * hd + d);
            dv[to] += p * dout.at(at + d);
            dk[to] += ds * qkv.at(query + d);
            dq[static_cast<size_t>(d)] += ds * qkv.at(key + d);
          }
        }
        for (int64_t d = 0; d < hd; ++d) dqkv.put(query + d, dq[static_cast<size_t>(d)]);
      }
    }
    for (int64_t j = 0; j < heads.length; ++j) {
      for (int64_t d = 0; d < hd; ++d) {
        dqkv.put(heads.k(first + j, kv) + d, dk[static_cast<size_t>(j * hd + d)]);
        dqkv.put(heads.v(first + j, kv) + d, dv[static_cast<size_t>(j * hd + d)]);
      }
    }
  });
}

// (qkv, key cache, value cache, position, slot) → out, key cache, value cache
void cached_attention(const Call& call) {
  const Array &qkv = call.in[0], &keys = call.in[1], &values = call.in[2], &out = call.out[0];
  const Heads heads(qkv, call.attrs);
  const int64_t room = keys.shape[1], width = keys.shape[2];
  // Where token n lies in its slot, and where that slot begins.
  const auto place = [&](int64_t n) { return call.in[3].index_at(n / heads.length) + n % heads.length; };
  const auto slot = [&](int64_t n) { return call.in[4].index_at(n / heads.length) * room; };
  for (int64_t n = 0; n < qkv.shape[0]; ++n) {
    const int64_t to = (slot(n) + place(n)) * width;
    for (int64_t c = 0; c < width; ++c) {
      keys.put(to + c, qkv.at(heads.k(n, 0) + c));
      values.put(to + c, qkv.at(heads.v(n, 0) + c));
    }
  }
  parallel_for(qkv.shape[0] * heads.heads, [&](int64_t task) {
    const int64_t n = task / heads.heads, head = task % heads.heads;
    const std::function<int64_t(int64_t)> at = [&](int64_t j) {
      return (slot(n) + j) * width + heads.kv_head(head) * heads.head_dim;
    };
    attend(heads, qkv, heads.q(n, head), keys, values, heads.first_key(0, place(n)), place(n) + 1, at, at,
           out, task * heads.head_dim);
  });
}

}  // namespace strata::reference
