#include "kernels/reference/attend.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"

namespace strata::reference {
namespace {

double dot(const Array& a, int64_t at_a, const Array& b, int64_t at_b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a.at(at_a + i) * b.at(at_b + i);
  return sum;
}

int64_t at(const Heads& part, int64_t size, int64_t token, int64_t head) {
  return token * part.row + part.first + head * size;
}
int64_t kv_head(const Attention& a, int64_t head) {
  return head / (a.heads / a.kv_heads);
}
int64_t bias_at(const Attention& a, int64_t head, const Seen& seen, int64_t j) {
  return head * a.bias.shape[1] + a.bias_zero + j - seen.position;
}

double capped(const Attention& a, double scaled) {
  return a.softcap > 0 ? a.softcap * std::tanh(scaled / a.softcap) : scaled;
}

double product(const Attention& a, int64_t n, int64_t head, const Seen& seen, int64_t j) {
  return a.scale * dot(a.q.data, at(a.q, a.head_dim, n, head), a.k.data,
                       at(a.k, a.head_dim, seen.origin + j, kv_head(a, head)), a.head_dim);
}
double score(const Attention& a, double scaled, int64_t head, const Seen& seen, int64_t j) {
  return capped(a, scaled) + (a.bias.present() ? a.bias.at(bias_at(a, head, seen, j)) : 0);
}

// The keys that query n sees.
std::vector<int64_t> keys_of(const Attention& a, int64_t n, const Seen& seen) {
  std::vector<int64_t> keys;
  if (a.chosen.present()) {
    for (int64_t i = n * a.chosen.shape[1]; i < (n + 1) * a.chosen.shape[1]; ++i)
      if (a.chosen.index_at(i) >= 0) keys.push_back(a.chosen.index_at(i));
    return keys;
  }
  for (int64_t j = seen.begin; j < seen.end; ++j) keys.push_back(j);
  return keys;
}

}  // namespace

void attend(const Attention& a, const Array& out, const Array& lse) {
  parallel_for(a.sequences * a.heads, [&](int64_t task) {
    const int64_t head = task % a.heads;
    for (int64_t t = 0; t < a.length; ++t) {
      const int64_t n = task / a.heads * a.length + t, to = (n * a.heads + head) * a.value_dim;
      const Seen seen = a.seen(n);
      const std::vector<int64_t> keys = keys_of(a, n, seen);
      std::vector<double> weights;
      const double sink = a.sinks.present() ? a.sinks.at(head) : -std::numeric_limits<double>::infinity();
      double highest = sink, total = 0;
      for (const int64_t j : keys) {
        weights.push_back(score(a, product(a, n, head, seen, j), head, seen, j));
        highest = std::max(highest, weights.back());
      }
      if (a.sinks.present()) total = std::exp(sink - highest);
      for (double& weight : weights) total += weight = std::exp(weight - highest);
      for (int64_t d = 0; d < a.value_dim; ++d) {
        double mixed = 0;
        for (size_t i = 0; i < keys.size(); ++i)
          mixed += weights[i] / total *
                   a.v.data.at(at(a.v, a.value_dim, seen.origin + keys[i], kv_head(a, head)) + d);
        out.put(to + d, mixed);
      }
      if (lse.present()) lse.put(task * a.length + t, total == 0 ? highest : highest + std::log(total));
    }
  });
}

void find_greatest_scores(const Attention& a, const Array& greatest) {
  if (!greatest.present()) return;
  parallel_for(a.heads, [&](int64_t head) {
    double most = greatest.accumulate ? greatest.at(head) : -std::numeric_limits<double>::infinity();
    for (int64_t n = 0; n < a.sequences * a.length; ++n) {
      const Seen seen = a.seen(n);
      for (const int64_t j : keys_of(a, n, seen)) most = std::max(most, product(a, n, head, seen, j));
    }
    greatest.put(head, most);
  });
}

void attend_backward(const Attention& a, const Array& dout, const Array& out, const Array& lse,
                     const Array& dq, const Array& dk, const Array& dv, const Array& dbias) {
  const int64_t hd = a.head_dim, vd = a.value_dim, group = a.heads / a.kv_heads,
                width = dbias.present() ? dbias.shape[1] : 0;
  std::vector<std::vector<double>> shares(static_cast<size_t>(a.sequences * a.kv_heads));  // of dbias
  parallel_for(a.sequences * a.kv_heads, [&](int64_t task) {
    const int64_t kv = task % a.kv_heads, sequence = task / a.kv_heads;
    std::vector<double> keys(static_cast<size_t>(a.encoder_length * hd)),
        values(static_cast<size_t>(a.encoder_length * vd)), query(static_cast<size_t>(hd)),
        distances(static_cast<size_t>(a.heads * width));
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
      for (int64_t t = 0; t < a.length; ++t) {
        const int64_t n = sequence * a.length + t, from = at(a.q, hd, n, head),
                      to = (n * a.heads + head) * vd;
        const double row_lse = lse.at((sequence * a.heads + head) * a.length + t);
        const double drift = dot(dout, to, out, to, vd);
        const Seen seen = a.seen(n);
        std::fill(query.begin(), query.end(), 0.0);
        for (const int64_t j : keys_of(a, n, seen)) {
          const int64_t key = at(a.k, hd, seen.origin + j, kv), value = at(a.v, vd, seen.origin + j, kv);
          const double scaled = product(a, n, head, seen, j);
          const double bend = a.softcap > 0 ? std::tanh(scaled / a.softcap) : 0;
          const double p = std::exp(score(a, scaled, head, seen, j) - row_lse);
          const double ds = p * (dot(dout, to, a.v.data, value, vd) - drift);
          if (dbias.present()) distances[static_cast<size_t>(bias_at(a, head, seen, j))] += ds;
          const double slope = a.scale * (1 - bend * bend) * ds;
          for (int64_t d = 0; d < vd; ++d) values[static_cast<size_t>(j * vd + d)] += p * dout.at(to + d);
          for (int64_t d = 0; d < hd; ++d) {
            keys[static_cast<size_t>(j * hd + d)] += slope * a.q.data.at(from + d);
            query[static_cast<size_t>(d)] += slope * a.k.data.at(key + d);
          }
        }
        for (int64_t d = 0; d < hd; ++d) dq.put(from + d, query[static_cast<size_t>(d)]);
      }
    }
    for (int64_t j = 0; j < a.encoder_length; ++j) {
      const int64_t token = sequence * a.encoder_length + j;
      for (int64_t d = 0; d < hd; ++d)
        dk.put(at(a.k, hd, token, kv) + d, keys[static_cast<size_t>(j * hd + d)]);
      for (int64_t d = 0; d < vd; ++d)
        dv.put(at(a.v, vd, token, kv) + d, values[static_cast<size_t>(j * vd + d)]);
    }
    shares[static_cast<size_t>(task)] = std::move(distances);
  });
  for (int64_t i = 0; i < a.heads * width; ++i) {
    double sum = 0;
    for (const std::vector<double>& share : shares) sum += share[static_cast<size_t>(i)];
    dbias.put(i, sum);
  }
}

}  // namespace strata::reference
