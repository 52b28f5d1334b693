#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/parallel.h"
#include "kernels/reference/attend.h"
#include "ops/reference.h"
#include "ops/sparse_attention/sparse_attention.h"

namespace strata::reference {
namespace {

// Keys [begin, end) that a row sees, numbered from row `origin` of the keys.
struct Visible {
  int64_t origin = 0, begin = 0, end = 0;
};

template <typename Op>
Visible visible_to(const Arrays<Op>& at, const ops::IndexerAttrs& attrs, int64_t row) {
  const int64_t length = attrs.sequence_length, piece = length / 2, i = row % length;
  const int64_t index = at.in.rank.present() ? place_in(at.in.rank, attrs.axis, attrs.ranks) : 0;
  int64_t place = i;
  if (attrs.ranks > 1)
    place = i < piece ? index * piece + i : (2 * attrs.ranks - 1 - index) * piece + i - piece;
  const int64_t begin =
      at.in.kv_begin.present() ? std::max<int64_t>(0, at.in.kv_begin.index_at(row)) : int64_t{0};
  return {.origin = row / length * attrs.kv_length, .begin = begin, .end = std::max(begin, place + 1)};
}

// The indexer: queries of H heads, keys that all heads share, weights of heads.
struct Indexer {
  const Array &q, &k, &weights;
  double scale;

  int64_t size() const { return k.shape[k.shape.rank() - 1]; }
  int64_t heads() const { return weights.shape[1]; }
  double dot(int64_t row, int64_t head, int64_t key) const {
    double sum = 0;
    for (int64_t c = 0; c < size(); ++c)
      sum += q.at((row * heads() + head) * size() + c) * k.at(key * size() + c);
    return sum;
  }
  double score(int64_t row, int64_t key) const {
    double sum = 0;
    for (int64_t head = 0; head < heads(); ++head)
      sum += weights.at(row * heads() + head) * std::max(0.0, dot(row, head, key));
    return scale * sum;
  }
};

// Places of the `count` keys with the greatest scores, ascending, then -1.
void choose(const Indexer& indexer, const Visible& seen, int64_t row, const Array& chosen) {
  const int64_t count = chosen.shape[1];
  std::vector<double> scores;
  for (int64_t j = seen.begin; j < seen.end; ++j) scores.push_back(indexer.score(row, seen.origin + j));
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(std::min(count, std::ssize(order))));
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < count; ++i)
    chosen.put(row * count + i, i < std::ssize(order)
                                    ? static_cast<double>(seen.begin + order[static_cast<size_t>(i)])
                                    : -1.0);
}

// Attention of q to the chosen keys.
template <typename Op>
Attention to_chosen(const Arrays<Op>& at) {
  const Array &q = at.in.q, &kv = at.in.kv;
  const auto& attrs = at.attrs;
  const int64_t k = kv.segments[0];
  Attention a = attention_of(ops::AttentionAttrs{.head_dim = attrs.head_dim,
                                                 .sequence_length = attrs.sequence_length,
                                                 .scale = attrs.scale,
                                                 .value_dim = attrs.value_dim},
                             {q, q.shape[1], 0}, q.shape[1], {kv, kv.shape[1], 0}, k, {kv, kv.shape[1], k},
                             attrs.kv_length);
  a.seen = [length = a.length, keys = attrs.kv_length](int64_t n) {
    return Seen{.origin = n / length * keys};
  };
  a.chosen = at.in.chosen;
  return a;
}

}  // namespace

template <>
void compute(const Arrays<ops::SelectKeys>& at) {
  const Indexer indexer{at.in.q, at.in.k, at.in.weights, at.attrs.scale};
  parallel_for(at.in.q.shape[0],
               [&](int64_t row) { choose(indexer, visible_to(at, at.attrs, row), row, at.out.chosen); });
}

template <>
void compute(const Arrays<ops::CachedSelectKeys>& at) {
  const Array &k = at.in.k, &cache = at.out.cache;
  const int64_t size = k.shape[1], positions = cache.shape[1], length = at.attrs.sequence_length;
  const auto place = [&](int64_t row) { return at.in.position.index_at(row / length) + row % length; };
  const auto origin = [&](int64_t row) { return at.in.slot.index_at(row / length) * positions; };
  for (int64_t row = 0; row < k.shape[0]; ++row) {
    for (int64_t c = 0; c < size; ++c) cache.put((origin(row) + place(row)) * size + c, k.at(row * size + c));
  }
  const Indexer indexer{at.in.q, cache, at.in.weights, at.attrs.scale};
  for (int64_t row = 0; row < k.shape[0]; ++row)
    choose(indexer, {.origin = origin(row), .begin = 0, .end = place(row) + 1}, row, at.out.chosen);
}

template <>
void compute(const Arrays<ops::SparseAttention>& at) {
  const Attention a = to_chosen(at);
  attend(a, at.out.out, at.out.lse);
  const Array &mass = at.out.mass, &chosen = at.in.chosen;
  if (!mass.present()) return;
  const int64_t count = chosen.shape[1];
  for (int64_t i = 0; i < chosen.shape.elements(); ++i) {
    const int64_t row = i / count, key = chosen.index_at(i), sequence = row / a.length;
    double sum = 0;
    for (int64_t head = 0; head < a.heads && key >= 0; ++head) {
      const int64_t kv_head = head / (a.heads / a.kv_heads);
      double dot = 0;
      for (int64_t c = 0; c < a.head_dim; ++c) {
        dot += a.q.data.at(row * a.q.row + head * a.head_dim + c) *
               a.k.data.at((a.seen(row).origin + key) * a.k.row + kv_head * a.head_dim + c);
      }
      // The lse was rounded: of doubles it would be better by 1e-7.
      sum += std::exp(a.scale * dot - at.out.lse.at((sequence * a.heads + head) * a.length + row % a.length));
    }
    mass.put(i, sum);
  }
}

template <>
void compute(const Arrays<ops::SparseAttentionGrad>& at) {
  attend_backward(to_chosen(at), at.in.dout, at.in.out, at.in.lse, at.out.dq, at.out.dkv, at.out.dkv, {});
}

namespace {

// The keys of a row's loss, rows of the keys' array; p of each, and its score.
struct RowOfLoss {
  std::vector<int64_t> keys;
  std::vector<double> p, scores;
  double log_sum = 0;  // of exponentials of scores

  double q(size_t i) const { return std::exp(scores[i] - log_sum); }
};

// Empty without a target, and if nothing is known of the main attention.
template <typename Op>
RowOfLoss row_of_loss(const Arrays<Op>& at, int64_t row) {
  const auto& in = at.in;
  const ops::IndexerAttrs& attrs = at.attrs.indexer;
  RowOfLoss made;
  if (in.targets.index_at(row) < 0) return made;
  const Visible seen = visible_to(at, attrs, row);
  if (in.chosen.present()) {
    for (int64_t i = row * attrs.count; i < (row + 1) * attrs.count; ++i) {
      if (in.chosen.index_at(i) < 0) continue;
      made.keys.push_back(seen.origin + in.chosen.index_at(i));
      made.p.push_back(in.mass.at(i));
    }
  } else {
    const Array &q = in.main_q, &kv = in.main_kv;
    const int64_t size = at.attrs.head_dim, heads = q.shape[1] / size, group = q.shape[1] / kv.segments[0];
    const int64_t length = attrs.sequence_length;
    for (int64_t j = seen.begin; j < seen.end; ++j) {
      double sum = 0;
      for (int64_t head = 0; head < heads; ++head) {
        double dot = 0;
        for (int64_t c = 0; c < size; ++c)
          dot += q.at(row * q.shape[1] + head * size + c) *
                 kv.at((seen.origin + j) * kv.shape[1] + head / group * size + c);
        sum += std::exp(at.attrs.main_scale * dot -
                        in.main_lse.at((row / length * heads + head) * length + row % length));
      }
      made.keys.push_back(seen.origin + j);
      made.p.push_back(sum);
    }
  }
  const double total = std::accumulate(made.p.begin(), made.p.end(), 0.0);
  if (total == 0) return {};
  const Indexer indexer{in.q, in.k, in.weights, attrs.scale};
  for (size_t i = 0; i < made.keys.size(); ++i) {
    made.p[i] /= total;
    made.scores.push_back(indexer.score(row, made.keys[i]));
  }
  const double most = *std::max_element(made.scores.begin(), made.scores.end());
  double sum = 0;
  for (const double score : made.scores) sum += std::exp(score - most);
  made.log_sum = most + std::log(sum);
  return made;
}

}  // namespace

template <>
void compute(const Arrays<ops::IndexerLoss>& at) {
  double sum = 0;
  for (int64_t row = 0; row < at.in.q.shape[0]; ++row) {
    const RowOfLoss one = row_of_loss(at, row);
    for (size_t i = 0; i < one.keys.size(); ++i) {
      if (one.p[i] > 0) sum += one.p[i] * (std::log(one.p[i]) - one.scores[i] + one.log_sum);
    }
  }
  at.out.sum.give(0, at.attrs.coefficient * sum);
}

template <>
void compute(const Arrays<ops::IndexerLossGrad>& at) {
  const auto& attrs = at.attrs;
  const Indexer indexer{at.in.q, at.in.k, at.in.weights, attrs.indexer.scale};
  const int64_t rows = at.in.q.shape[0], heads = indexer.heads(), size = indexer.size();
  const double factor =
      attrs.coefficient * attrs.indexer.scale * (at.in.seed.present() ? at.in.seed.at(0) : 1.0);
  std::vector<double> dk(static_cast<size_t>(at.in.k.shape.elements()));
  for (int64_t row = 0; row < rows; ++row) {
    const RowOfLoss one = row_of_loss(at, row);
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t first = (row * heads + head) * size;
      const double weight = at.in.weights.at(row * heads + head);
      std::vector<double> dq(static_cast<size_t>(size));
      double dweight = 0;
      for (size_t i = 0; i < one.keys.size(); ++i) {
        const double dot = indexer.dot(row, head, one.keys[i]), d = factor * (one.q(i) - one.p[i]);
        if (dot <= 0) continue;
        dweight += d * dot;
        for (int64_t c = 0; c < size; ++c) {
          const int64_t key = one.keys[i] * size + c;
          dq[static_cast<size_t>(c)] += d * weight * at.in.k.at(key);
          dk[static_cast<size_t>(key)] += d * weight * at.in.q.at(first + c);
        }
      }
      for (int64_t c = 0; c < size; ++c) at.out.dq.put(first + c, dq[static_cast<size_t>(c)]);
      at.out.dweights.put(row * heads + head, dweight);
    }
  }
  for (size_t i = 0; i < dk.size(); ++i) at.out.dk.put(static_cast<int64_t>(i), dk[i]);
}

}  // namespace strata::reference
