#include <cmath>

#include "base/parallel.h"
#include "kernels/reference/call.h"
#include "ops/ops.h"

namespace strata::reference {
namespace {

// A run of elements of a row of qkv that is normalised by itself.
struct Group {
  int64_t begin, width;
  bool is_q;
};

std::vector<Group> groups_of(const Array& qkv, int64_t q_width, int64_t k_width) {
  std::vector<Group> groups;
  for (int64_t at = 0; at < qkv.segments[0]; at += q_width) groups.push_back({at, q_width, true});
  for (int64_t at = 0; at < qkv.segments[1]; at += k_width)
    groups.push_back({qkv.segments[0] + at, k_width, false});
  return groups;
}

// (qkv, q weight, k weight) → y, rstd
void qk_norm(const Call& call) {
  const Array &qkv = call.in[0], &y = call.out[0], &rstds = call.out[1];
  const auto groups = groups_of(qkv, call.in[1].shape[0], call.in[2].shape[0]);
  const double offset = call.attrs.as<ops::QkNormAttrs>().weight_offset,
               eps = call.attrs.as<ops::QkNormAttrs>().eps;
  const int64_t row = qkv.shape[1];
  parallel_for(qkv.shape[0], [&](int64_t n) {
    const std::vector<double> x = qkv.row(n);
    for (int64_t c = qkv.segments[0] + qkv.segments[1]; c < row; ++c)
      y.put(n * row + c, x[static_cast<size_t>(c)]);
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto [begin, width, is_q] = groups[g];
      double squares = 0;
      for (int64_t c = 0; c < width; ++c) squares += std::pow(x[static_cast<size_t>(begin + c)], 2);
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
      rstds.put(n * static_cast<int64_t>(groups.size()) + static_cast<int64_t>(g), rstd);
      for (int64_t c = 0; c < width; ++c) {
        y.put(n * row + begin + c,
              x[static_cast<size_t>(begin + c)] * rstd * (call.in[is_q ? 1 : 2].at(c) + offset));
      }
    }
  });
}

// (dy, qkv, rstd, q weight, k weight) → dx
void qk_norm_grad_input(const Call& call) {
  const Array &dy = call.in[0], &qkv = call.in[1], &rstds = call.in[2], &dx = call.out[0];
  const auto groups = groups_of(qkv, call.in[3].shape[0], call.in[4].shape[0]);
  const double offset = call.attrs.as<ops::QkNormAttrs>().weight_offset;
  const int64_t row = qkv.shape[1];
  parallel_for(qkv.shape[0], [&](int64_t n) {
    const std::vector<double> grad = dy.row(n), x = qkv.row(n);
    for (int64_t c = qkv.segments[0] + qkv.segments[1]; c < row; ++c)
      dx.put(n * row + c, grad[static_cast<size_t>(c)]);
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto [begin, width, is_q] = groups[g];
      const Array& weight = call.in[is_q ? 3 : 4];
      const double rstd = rstds.at(n * static_cast<int64_t>(groups.size()) + static_cast<int64_t>(g));
      double slope = 0;
      for (int64_t c = 0; c < width; ++c) {
        const auto at = static_cast<size_t>(begin + c);
        slope += grad[at] * (weight.at(c) + offset) * x[at] * rstd;
      }
      slope /= static_cast<double>(width);
      for (int64_t c = 0; c < width; ++c) {
        const auto at = static_cast<size_t>(begin + c);
        dx.put(n * row + begin + c, rstd * (grad[at] * (weight.at(c) + offset) - x[at] * rstd * slope));
      }
    }
  });
}

// (dy, qkv, rstd) → dq weight, dk weight
void qk_norm_grad_weight(const Call& call) {
  const Array &dy = call.in[0], &qkv = call.in[1], &rstds = call.in[2];
  const auto groups = groups_of(qkv, call.out[0].shape[0], call.out[1].shape[0]);
  const int64_t row = qkv.shape[1];
  for (const bool q : {true, false}) {
    const Array& out = call.out[q ? 0 : 1];
    parallel_for(out.shape[0], [&](int64_t c) {
      double sum = 0;
      for (int64_t n = 0; n < qkv.shape[0]; ++n) {
        for (size_t g = 0; g < groups.size(); ++g) {
          if (groups[g].is_q != q) continue;
          const int64_t at = n * row + groups[g].begin + c;
          sum += dy.at(at) * qkv.at(at) *
                 rstds.at(n * static_cast<int64_t>(groups.size()) + static_cast<int64_t>(g));
        }
      }
      out.give(c, sum);
    });
  }
}

}  // namespace

std::span<const Row> qk_norm_kernels() {
  static const Row kRows[] = {
      {&ops::kQkNorm, qk_norm},
      {&ops::kQkNormGradInput, qk_norm_grad_input},
      {&ops::kQkNormGradWeight, qk_norm_grad_weight},
  };
  return kRows;
}

}  // namespace strata::reference
