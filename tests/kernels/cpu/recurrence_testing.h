// The recurrence token by token in fp64, with its gradients, and calls of the kernels for comparison.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/array_testing.h"
#include "kernels/cpu/recurrence.h"

namespace strata::cpu::recurrence_testing {

using testing::Array;
using Numbers = std::vector<double>;

inline hardware::DeviceSpec device_of(int threads, bool pairs = false) {
  hardware::DeviceSpec device;
  device.threads = threads;
  device.isa.avx512_bf16 = pairs;
  return device;
}

enum class Rule { kHead, kChannel, kSpace };  // decays a head or a channel; without delta

struct Problem {
  RecurrenceShape shape;
  std::vector<float> g = {}, beta = {}, skip = {}, before = {}, dlast = {};
  std::vector<int32_t> positions = {};
  Array mixed{DType::kF32, 0}, dout{DType::kF32, 0};

  int64_t rows() const { return shape.ranges * shape.rows; }
  int64_t states() const { return shape.ranges * shape.value_heads * shape.key_dim * shape.value_dim; }
  RecurrenceInputs inputs() const {
    return {.mixed = mixed.data(),
            .g = g.data(),
            .beta = beta.data(),
            .skip = skip.empty() ? nullptr : skip.data(),
            .positions = positions.empty() ? nullptr : positions.data(),
            .before = before.empty() ? nullptr : before.data()};
  }
};

struct Sizes {
  int64_t ranges = 1, rows = 1, key_heads = 1, value_heads = 1, key_dim = 8, value_dim = 8, chunk = 64;
};

inline RecurrenceShape shape_of(Rule rule, const Sizes& n, DType dtype = DType::kF32) {
  const bool delta = rule != Rule::kSpace;
  const int64_t keys = n.key_heads * n.key_dim, values = n.value_heads * n.value_dim;
  return {.ranges = n.ranges,
          .rows = n.rows,
          .key_heads = n.key_heads,
          .value_heads = n.value_heads,
          .key_dim = n.key_dim,
          .value_dim = n.value_dim,
          .width = 2 * keys + values,
          .q_first = delta ? 0 : values + keys,
          .k_first = delta ? keys : values,
          .v_first = delta ? 2 * keys : 0,
          .delta = delta,
          .by_channel = rule == Rule::kChannel,
          .l2_norm = delta,
          .scale = delta ? 1 / std::sqrt(static_cast<float>(n.key_dim)) : 1.0f,
          .chunk = n.chunk,
          .dtype = dtype};
}

// Random operands: decays up to `decay` a token, β up to 2 of delta and up to 0.1 of a space (as dt). Keys of
// delta have a cosine near `alike`.
inline Problem problem_of(Rule rule, const Sizes& n, double decay, double alike = 0, unsigned seed = 1,
                          DType dtype = DType::kF32) {
  Problem p{.shape = shape_of(rule, n, dtype)};
  const RecurrenceShape& s = p.shape;
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  const auto fill = [&](std::vector<float>& to, int64_t count, auto next) {
    for (int64_t i = 0; i < count; ++i) to.push_back(static_cast<float>(next()));
  };
  fill(p.g, p.rows() * s.value_heads * (s.by_channel ? s.key_dim : 1),
       [&] { return -decay * uniform(engine); });
  fill(p.beta, p.rows() * s.value_heads,
       [&] { return s.delta ? (alike > 0 ? 2.0 : 2 * uniform(engine)) : 0.1 * uniform(engine); });
  if (!s.delta) fill(p.skip, s.value_heads, [&] { return normal(engine); });
  p.mixed = Array::random(dtype, p.rows() * s.width, seed + 1);
  if (alike > 0) {
    const double own = std::sqrt(1 - alike);
    for (int64_t row = 0; row < p.rows(); ++row) {
      for (int64_t c = s.k_first; c < s.k_first + s.key_heads * s.key_dim; ++c)
        p.mixed.set(row * s.width + c, own * p.mixed[row * s.width + c] +
                                           std::sqrt(alike) * 1.4 * std::sin(static_cast<double>(c * c)));
    }
  }
  p.dout = Array::random(dtype, p.rows() * s.value_heads * s.value_dim, seed + 2);
  return p;
}
inline void add_states(Problem& p, unsigned seed) {
  const Array before = Array::random(DType::kF32, p.states(), seed, 0.3),
              dlast = Array::random(DType::kF32, p.states(), seed + 1, 0.3);
  p.before.assign(before.f32(), before.f32() + p.states());
  p.dlast.assign(dlast.f32(), dlast.f32() + p.states());
}

struct Results {
  Numbers out, last, dmixed, dg, dbeta, dbefore;
};

// The formulas of recurrence.h, token by token.
inline Results expected(const Problem& p) {
  const RecurrenceShape& s = p.shape;
  const auto keys = static_cast<size_t>(s.key_dim), values = static_cast<size_t>(s.value_dim);
  Results to{.out = Numbers(static_cast<size_t>(p.dout.size())),
             .last = Numbers(static_cast<size_t>(p.states())),
             .dmixed = Numbers(static_cast<size_t>(p.mixed.size())),
             .dg = Numbers(p.g.size()),
             .dbeta = Numbers(p.beta.size()),
             .dbefore = Numbers(static_cast<size_t>(p.states()))};
  for (int64_t range = 0; range < s.ranges; ++range) {
    for (int64_t head = 0; head < s.value_heads; ++head) {
      const int64_t key = head * s.key_heads / s.value_heads * s.key_dim;
      const auto state_at = static_cast<size_t>((range * s.value_heads + head) * s.key_dim * s.value_dim);
      const auto column = [&](int64_t t, int64_t first) {
        return static_cast<size_t>((range * s.rows + t) * s.width + first);
      };
      const auto normed = [&](int64_t t, int64_t first, double scale, double& rsqrt) {
        Numbers x(keys);
        double squares = 1e-6;
        for (size_t c = 0; c < keys; ++c) {
          x[c] = p.mixed[static_cast<int64_t>(column(t, first) + c)];
          squares += x[c] * x[c];
        }
        rsqrt = s.l2_norm ? 1 / std::sqrt(squares) : 1;
        for (double& one : x) one *= rsqrt * scale;
        return x;
      };
      const auto gate = [&](int64_t t, size_t c) {
        const int64_t row = (range * s.rows + t) * s.value_heads + head;
        return s.by_channel ? static_cast<size_t>(row) * keys + c : static_cast<size_t>(row);
      };
      const auto begins = [&](int64_t t) {
        return !p.positions.empty() && p.positions[static_cast<size_t>(range * s.rows + t)] == 0;
      };
      const auto row_of = [&](int64_t t) {
        return static_cast<size_t>((range * s.rows + t) * s.value_heads + head);
      };
      // States before and after each token's write, both after its decay, and v - Sᵀk.
      std::vector<Numbers> decayed, after, left;
      Numbers state(keys * values);
      for (size_t i = 0; i < state.size() && !p.before.empty(); ++i)
        state[i] = static_cast<double>(p.before[state_at + i]);
      const Numbers entry = state;
      double q_rsqrt = 1, k_rsqrt = 1;
      for (int64_t t = 0; t < s.rows; ++t) {
        const Numbers q = normed(t, s.q_first + key, static_cast<double>(s.scale), q_rsqrt),
                      k = normed(t, s.k_first + key, 1, k_rsqrt);
        const double beta = static_cast<double>(p.beta[row_of(t)]);
        for (size_t i = 0; i < state.size(); ++i)
          state[i] *= begins(t) ? 0 : std::exp(static_cast<double>(p.g[gate(t, i / values)]));
        decayed.push_back(state);
        Numbers e(values);
        for (size_t j = 0; j < values; ++j) {
          const double v = p.mixed[static_cast<int64_t>(column(t, s.v_first + head * s.value_dim) + j)];
          e[j] = v;
          for (size_t c = 0; c < keys && s.delta; ++c) e[j] -= state[c * values + j] * k[c];
          double o = p.skip.empty() ? 0 : static_cast<double>(p.skip[static_cast<size_t>(head)]) * v;
          for (size_t c = 0; c < keys; ++c) {
            state[c * values + j] += k[c] * beta * e[j];
            o += state[c * values + j] * q[c];
          }
          to.out[row_of(t) * values + j] = o;
        }
        left.push_back(e);
        after.push_back(state);
      }
      std::copy(state.begin(), state.end(), to.last.begin() + static_cast<int64_t>(state_at));
      Numbers more(state.size());
      for (size_t i = 0; i < more.size() && !p.dlast.empty(); ++i)
        more[i] = static_cast<double>(p.dlast[state_at + i]);
      for (int64_t t = s.rows - 1; t >= 0; --t) {
        const auto at = static_cast<size_t>(t);
        const Numbers q = normed(t, s.q_first + key, static_cast<double>(s.scale), q_rsqrt),
                      k = normed(t, s.k_first + key, 1, k_rsqrt);
        const double beta = static_cast<double>(p.beta[row_of(t)]);
        Numbers dq(keys), dk(keys), du(values);
        const auto dout = [&](size_t j) { return p.dout[static_cast<int64_t>(row_of(t) * values + j)]; };
        for (size_t c = 0; c < keys; ++c) {
          for (size_t j = 0; j < values; ++j) {
            dq[c] += after[at][c * values + j] * dout(j);
            more[c * values + j] += q[c] * dout(j);
            dk[c] += more[c * values + j] * beta * left[at][j];
            du[j] += more[c * values + j] * k[c];
          }
        }
        for (size_t j = 0; j < values; ++j) {
          to.dbeta[row_of(t)] += du[j] * left[at][j];
          const double through = p.skip.empty() ? 0 : static_cast<double>(p.skip[static_cast<size_t>(head)]);
          to.dmixed[column(t, s.v_first + head * s.value_dim) + j] += beta * du[j] + through * dout(j);
        }
        for (size_t i = 0; i < more.size(); ++i) {
          const size_t c = i / values, j = i % values;
          if (s.delta) {
            dk[c] -= decayed[at][i] * beta * du[j];
            more[i] -= k[c] * beta * du[j];
          }
          to.dg[gate(t, c)] += more[i] * decayed[at][i];
          more[i] *= begins(t) ? 0 : std::exp(static_cast<double>(p.g[gate(t, c)]));
        }
        const auto through_norm = [&](const Numbers& dy, const Numbers& y, double rsqrt, double scale,
                                      int64_t first) {
          double along = 0;
          for (size_t c = 0; c < keys && s.l2_norm; ++c) along += dy[c] * y[c] / scale;
          for (size_t c = 0; c < keys; ++c)
            to.dmixed[column(t, first + key) + c] += rsqrt * (scale * dy[c] - y[c] * along);
        };
        through_norm(dq, q, q_rsqrt, static_cast<double>(s.scale), s.q_first);
        through_norm(dk, k, k_rsqrt, 1, s.k_first);
      }
      std::copy(more.begin(), more.end(), to.dbefore.begin() + static_cast<int64_t>(state_at));
    }
  }
  return to;
}

// Results of the kernels. Outputs and scratch hold NaN before.
inline Results computed(const Problem& p, int threads = 1, bool pairs = false) {
  const RecurrencePlan plan = plan_recurrence(p.shape, device_of(threads, pairs));
  const DType dtype = p.shape.dtype;
  Array out(dtype, p.dout.size()), dmixed(dtype, p.mixed.size());
  Array dg(DType::kF32, static_cast<int64_t>(p.g.size())),
      dbeta(DType::kF32, static_cast<int64_t>(p.beta.size()));
  Array dbefore(DType::kF32, p.states());
  {
    Array scratch = testing::scratch_of(plan.forward_bytes);
    recurrence_forward(plan, out.data(), p.inputs(), scratch.data());
  }
  Array scratch = testing::scratch_of(plan.backward_bytes);
  recurrence_backward(
      plan, {.dmixed = dmixed.data(), .dg = dg.f32(), .dbeta = dbeta.f32(), .dbefore = dbefore.f32()},
      p.dout.data(), p.dlast.empty() ? nullptr : p.dlast.data(), p.inputs(), scratch.data());
  return {out.values(), {}, dmixed.values(), dg.values(), dbeta.values(), dbefore.values()};
}

// The norm of the difference by that of `wanted`.
inline double distance(const Numbers& found, const Numbers& wanted) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference += (found[i] - wanted[i]) * (found[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}
// Columns [first, first + width) of rows of all columns.
inline Numbers columns(const Numbers& of, int64_t all, int64_t first, int64_t width) {
  Numbers some;
  for (int64_t row = 0; row < static_cast<int64_t>(of.size()); row += all)
    some.insert(some.end(), of.begin() + row + first, of.begin() + row + first + width);
  return some;
}

// Outputs and every gradient, each within `bound` of its norm.
inline void expect_close(const Problem& p, const Results& found, const Results& wanted, double bound) {
  const RecurrenceShape& s = p.shape;
  const int64_t keys = s.key_heads * s.key_dim, values = s.value_heads * s.value_dim;
  EXPECT_LT(distance(found.out, wanted.out), bound) << "outputs";
  for (const auto& [name, first, width] :
       {std::tuple{"dq", s.q_first, keys}, {"dk", s.k_first, keys}, {"dv", s.v_first, values}})
    EXPECT_LT(
        distance(columns(found.dmixed, s.width, first, width), columns(wanted.dmixed, s.width, first, width)),
        bound)
        << name;
  EXPECT_LT(distance(found.dg, wanted.dg), bound) << "dg";
  EXPECT_LT(distance(found.dbeta, wanted.dbeta), bound) << "dbeta";
  if (!p.before.empty()) {
    EXPECT_LT(distance(found.dbefore, wanted.dbefore), bound) << "dbefore";
  }
}

}  // namespace strata::cpu::recurrence_testing
