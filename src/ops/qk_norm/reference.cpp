#include <cmath>

#include "base/parallel.h"
#include "ops/qk_norm/qk_norm.h"
#include "ops/reference.h"

namespace strata::reference {
namespace {

// A run of elements of a row of qkv that is normalised by itself.
struct QkGroup {
  int64_t begin, width;
  bool is_q;
};

std::vector<QkGroup> qk_groups(const Array& qkv, int64_t q_width, int64_t k_width) {
  std::vector<QkGroup> groups;
  for (int64_t at = 0; at < qkv.segments[0]; at += q_width) groups.push_back({at, q_width, true});
  for (int64_t at = 0; at < qkv.segments[1]; at += k_width)
    groups.push_back({qkv.segments[0] + at, k_width, false});
  return groups;
}

}  // namespace

template <>
void compute(const Arrays<ops::QkNorm>& at) {
  const Array &qkv = at.in.qkv, &y = at.out.y, &means = at.in.means;
  const auto groups = qk_groups(qkv, at.in.q_weight.shape[0], at.in.k_weight.shape[0]);
  const int64_t row = qkv.shape[1];
  parallel_for(qkv.shape[0], [&](int64_t n) {
    const std::vector<double> x = qkv.row(n);
    for (int64_t c = qkv.segments[0] + qkv.segments[1]; c < row; ++c)
      y.put(n * row + c, x[static_cast<size_t>(c)]);
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto [begin, width, is_q] = groups[g];
      const Array& weight = is_q ? at.in.q_weight : at.in.k_weight;
      double squares = 0;
      for (int64_t c = 0; c < width; ++c) squares += std::pow(x[static_cast<size_t>(begin + c)], 2);
      const double mean =
          means.present() ? means.at(2 * n + (is_q ? 0 : 1)) : squares / static_cast<double>(width);
      const double rstd = 1 / std::sqrt(mean + at.attrs.eps);
      at.out.rstd.put(n * static_cast<int64_t>(groups.size()) + static_cast<int64_t>(g), rstd);
      for (int64_t c = 0; c < width; ++c)
        y.put(n * row + begin + c,
              x[static_cast<size_t>(begin + c)] * rstd * (weight.at(c) + at.attrs.weight_offset));
    }
  });
}

template <>
void compute(const Arrays<ops::QkNormGradInput>& at) {
  const Array &dy = at.in.dy, &qkv = at.in.qkv, &dx = at.out.dx;
  const auto groups = qk_groups(qkv, at.in.q_weight.shape[0], at.in.k_weight.shape[0]);
  const int64_t row = qkv.shape[1];
  parallel_for(qkv.shape[0], [&](int64_t n) {
    const std::vector<double> grad = dy.row(n), x = qkv.row(n);
    for (int64_t c = qkv.segments[0] + qkv.segments[1]; c < row; ++c)
      dx.put(n * row + c, grad[static_cast<size_t>(c)]);
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto [begin, width, is_q] = groups[g];
      const auto first = static_cast<size_t>(begin);
      const Array& weight = is_q ? at.in.q_weight : at.in.k_weight;
      const auto factor = [&](int64_t c) { return weight.at(c) + at.attrs.weight_offset; };
      const double rstd = at.in.rstd.at(n * static_cast<int64_t>(groups.size()) + static_cast<int64_t>(g));
      double slope = 0;
      for (int64_t c = 0; c < width; ++c) {
        const size_t i = first + static_cast<size_t>(c);
        slope += grad[i] * factor(c) * x[i] * rstd;
      }
      slope /= static_cast<double>(width);
      if (at.in.means.present()) slope = at.in.means.at(2 * n + (is_q ? 0 : 1)) * rstd;
      for (int64_t c = 0; c < width; ++c) {
        const size_t i = first + static_cast<size_t>(c);
        dx.put(n * row + begin + c, rstd * (grad[i] * factor(c) - x[i] * rstd * slope));
      }
    }
  });
}

template <>
void compute(const Arrays<ops::QkNormGradWeight>& at) {
  const Array &dy = at.in.dy, &qkv = at.in.qkv;
  const auto groups = qk_groups(qkv, at.out.dq.shape[0], at.out.dk.shape[0]);
  const int64_t row = qkv.shape[1];
  for (const bool q : {true, false}) {
    const Array& out = q ? at.out.dq : at.out.dk;
    parallel_for(out.shape[0], [&](int64_t c) {
      double sum = 0;
      for (int64_t n = 0; n < qkv.shape[0]; ++n) {
        for (size_t g = 0; g < groups.size(); ++g) {
          if (groups[g].is_q != q) continue;
          const int64_t i = n * row + groups[g].begin + c;
          sum += dy.at(i) * qkv.at(i) *
                 at.in.rstd.at(n * static_cast<int64_t>(groups.size()) + static_cast<int64_t>(g));
        }
      }
      out.give(c, sum);
    });
  }
}

template <>
void compute(const Arrays<ops::QkMeans>& at) {
  const Array &qkv = at.in.qkv, &dy = at.in.dy;
  for (int64_t n = 0; n < qkv.shape[0]; ++n) {
    for (const auto& [begin, width, is_q] : qk_groups(qkv, qkv.segments[0], qkv.segments[1])) {
      const Array& weight = is_q ? at.in.q_weight : at.in.k_weight;
      double sum = 0;
      for (int64_t c = 0; c < width; ++c) {
        const int64_t i = n * qkv.shape[1] + begin + c;
        sum += qkv.at(i) * (dy.present() ? dy.at(i) * (weight.at(c) + at.attrs.weight_offset) : qkv.at(i));
      }
      at.out.means.put(2 * n + (is_q ? 0 : 1),
                       sum / static_cast<double>(is_q ? at.attrs.q_width : at.attrs.k_width));
    }
  }
}

}  // namespace strata::reference
