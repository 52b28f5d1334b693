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

// (qkv, q weight, k weight, means?) → y, rstd
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
      const double mean =
          call.in[3].present() ? call.in[3].at(2 * n + (is_q ? 0 : 1)) : squares / static_cast<double>(width);
      const double rstd = 1 / std::sqrt(mean + eps);
      rstds.put(n * static_cast<int64_t>(groups.size()) + static_cast<int64_t>(g), rstd);
      for (int64_t c = 0; c < width; ++c) {
        y.put(n * row + begin + c,
              x[static_cast<size_t>(begin + c)] * rstd * (call.in[is_q ? 1 : 2].at(c) + offset));
      }
    }
  });
}

// (dy, qkv, rstd, q weight, k weight, means?) → dx
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
      if (call.in[5].present()) slope = call.in[5].at(2 * n + (is_q ? 0 : 1)) * rstd;
      for (int64_t c = 0; c < width; ++c) {
        const auto at = static_cast<size_t>(begin + c);
        dx.put(n * row + begin + c, rstd * (grad[at] * (weight.at(c) + offset) - x[at] * rstd * slope));
      }
    }
  });
}

// (qkv, dy?, q weight?, k weight?) → means
void qk_means(const Call& call) {
  const Array &qkv = call.in[0], &dy = call.in[1];
  const auto& attrs = call.attrs.as<ops::QkMeansAttrs>();
  for (int64_t n = 0; n < qkv.shape[0]; ++n) {
    for (const Group& group : groups_of(qkv, qkv.segments[0], qkv.segments[1])) {
      double sum = 0;
      for (int64_t c = 0; c < group.width; ++c) {
        const int64_t at = n * qkv.shape[1] + group.begin + c;
        sum +=
            qkv.at(at) * (dy.present() ? dy.at(at) * (call.in[group.is_q ? 2 : 3].at(c) + attrs.weight_offset)
                                       : qkv.at(at));
      }
      call.out[0].put(2 * n + (group.is_q ? 0 : 1),
                      sum / static_cast<double>(group.is_q ? attrs.q_width : attrs.k_width));
    }
  }
}

// A rank's keys and values among those that it reads: body(column in qkv, column in kv).
template <typename Body>
void for_shared_columns(const ops::ShareHeadsAttrs& attrs, const Array& qkv, const Array& rank,
                        const Body& body) {
  const int64_t q = qkv.segments[0], own = qkv.segments[1], kv = own * attrs.ranks / attrs.copies;
  const int64_t first = attrs.ranks > 1 ? graph::coordinates_in(rank.data)[attrs.axis] * own : 0;
  for (int64_t part = 0; part < 2; ++part) {
    for (int64_t c = 0; c < own; ++c) {
      const int64_t head = (first + c) / attrs.head_dim / attrs.copies;
      body(q + part * own + c, part * kv + head * attrs.head_dim + c % attrs.head_dim);
    }
  }
}

// (q, kv, rank) → qkv
void share_heads(const Call& call) {
  const Array &q = call.in[0], &kv = call.in[1], &qkv = call.out[0];
  for (int64_t n = 0; n < qkv.shape[0]; ++n) {
    for (int64_t c = 0; c < q.shape[1]; ++c) qkv.put(n * qkv.shape[1] + c, q.at(n * q.shape[1] + c));
    for_shared_columns(call.attrs.as<ops::ShareHeadsAttrs>(), qkv, call.in[2], [&](int64_t to, int64_t from) {
      qkv.put(n * qkv.shape[1] + to, kv.at(n * kv.shape[1] + from));
    });
  }
}

// (dqkv, rank) → dq, dkv
void share_heads_grad(const Call& call) {
  const Array &dqkv = call.in[0], &dq = call.out[0], &dkv = call.out[1];
  for (int64_t n = 0; n < dqkv.shape[0]; ++n) {
    for (int64_t c = 0; c < dq.shape[1]; ++c) dq.put(n * dq.shape[1] + c, dqkv.at(n * dqkv.shape[1] + c));
    std::vector<double> sums(static_cast<size_t>(dkv.shape[1]));
    for_shared_columns(call.attrs.as<ops::ShareHeadsAttrs>(), dqkv, call.in[1],
                       [&](int64_t from, int64_t to) {
                         sums[static_cast<size_t>(to)] += dqkv.at(n * dqkv.shape[1] + from);
                       });
    for (size_t c = 0; c < sums.size(); ++c) dkv.put(n * dkv.shape[1] + static_cast<int64_t>(c), sums[c]);
  }
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
      {&ops::kQkMeans, qk_means},
      {&ops::kShareHeads, share_heads},
      {&ops::kShareHeadsGrad, share_heads_grad},
      {&ops::kQkNormGradInput, qk_norm_grad_input},
      {&ops::kQkNormGradWeight, qk_norm_grad_weight},
  };
  return kRows;
}

}  // namespace strata::reference
