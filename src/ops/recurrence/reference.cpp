#include <algorithm>
#include <cmath>
#include <functional>

#include "base/parallel.h"
#include "ops/recurrence/recurrence.h"
#include "ops/recurrence/sizes.h"
#include "ops/reference.h"

namespace strata::reference {
namespace {

using Numbers = std::vector<double>;

double dot(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// A head's q, k and v of one row, and its decays.
struct Token {
  Numbers q, k, v, decay = {};  // q and k as the state meets them; e^g of each channel of the keys
  double q_rsqrt = 1, k_rsqrt = 1, beta = 0;
  bool begins = false;  // a document: the state is 0 before it
};

// The recurrence of one value head over the rows of one range.
struct HeadOfRange {
  const ops::RecurrenceAttrs& attrs;
  ops::RecurrenceHeads heads;
  const Array &mixed, &g, &beta;
  const Array* positions = nullptr;
  int64_t head = 0, first = 0, rows = 0;

  size_t keys() const { return static_cast<size_t>(heads.key_dim); }
  size_t values() const { return static_cast<size_t>(heads.value_dim); }
  bool delta() const { return attrs.kind == RecurrenceKind::kDelta; }
  bool by_channel() const { return g.shape[1] != heads.value_heads; }
  int64_t key_column() const { return heads.key_head(head) * heads.key_dim; }

  Numbers columns(int64_t t, int64_t begin, int64_t n) const {
    Numbers all;
    for (int64_t c = 0; c < n; ++c) all.push_back(mixed.at((first + t) * mixed.shape[1] + begin + c));
    return all;
  }
  double norm(Numbers& x, double scale) const {
    const double rsqrt = attrs.l2_norm ? 1 / std::sqrt(dot(x, x) + 1e-6) : 1;
    for (double& one : x) one *= rsqrt * scale;
    return rsqrt;
  }
  int64_t gate(int64_t t, int64_t channel) const {
    return (first + t) * g.shape[1] + (by_channel() ? head * heads.key_dim + channel : head);
  }
  Token token(int64_t t) const {
    Token one{.q = columns(t, heads.q + key_column(), heads.key_dim),
              .k = columns(t, heads.k + key_column(), heads.key_dim),
              .v = columns(t, heads.v + head * heads.value_dim, heads.value_dim)};
    one.q_rsqrt = norm(one.q, attrs.scale);
    one.k_rsqrt = norm(one.k, 1);
    for (int64_t c = 0; c < heads.key_dim; ++c) one.decay.push_back(std::exp(g.at(gate(t, c))));
    one.beta = beta.at((first + t) * heads.value_heads + head);
    one.begins = positions != nullptr && positions->index_at(first + t) == 0;
    return one;
  }

  // Decays the state before a token.
  void decay(Numbers& state, const Token& token) const {
    for (size_t c = 0; c < keys(); ++c) {
      for (size_t j = 0; j < values(); ++j) state[c * values() + j] *= token.begins ? 0 : token.decay[c];
    }
  }
  // v - Sᵀk, or v of a state space, of the decayed state.
  Numbers rest(const Numbers& state, const Token& token) const {
    Numbers left = token.v;
    for (size_t c = 0; delta() && c < keys(); ++c) {
      for (size_t j = 0; j < values(); ++j) left[j] -= state[c * values() + j] * token.k[c];
    }
    return left;
  }
  void write(Numbers& state, const Token& token) const {
    decay(state, token);
    const Numbers left = rest(state, token);
    for (size_t c = 0; c < keys(); ++c) {
      for (size_t j = 0; j < values(); ++j) state[c * values() + j] += token.k[c] * token.beta * left[j];
    }
  }
  Numbers read(const Numbers& state, const Token& token) const {
    Numbers o(values(), 0.0);
    for (size_t c = 0; c < keys(); ++c) {
      for (size_t j = 0; j < values(); ++j) o[j] += state[c * values() + j] * token.q[c];
    }
    return o;
  }
  Numbers state_of(const Array& states, int64_t range) const {
    const int64_t n = heads.key_dim * heads.value_dim;
    Numbers state;
    for (int64_t i = 0; i < n; ++i)
      state.push_back(states.present() ? states.at(range * heads.state_width() + head * n + i) : 0.0);
    return state;
  }
  void put_state(const Array& states, int64_t range, const Numbers& state) const {
    const auto n = static_cast<int64_t>(state.size());
    for (int64_t i = 0; i < n; ++i)
      states.put(range * heads.state_width() + head * n + i, state[static_cast<size_t>(i)]);
  }
  void put_outputs(const Array& out, const Array& skip, int64_t t, const Token& token, Numbers o) const {
    for (size_t j = 0; j < values(); ++j) {
      if (skip.present()) o[j] += skip.at(head) * token.v[j];
      out.put((first + t) * heads.value_width() + head * heads.value_dim + static_cast<int64_t>(j), o[j]);
    }
  }
};

// Calls body(head of a range, its index) for all value heads of all ranges.
template <typename Op>
void for_heads(const Arrays<Op>& at, int64_t pieces_of_sequence,
               const std::function<void(const HeadOfRange&, int64_t)>& body) {
  const ops::RecurrenceHeads heads(at.attrs, at.in.mixed.segments);
  const int64_t rows = at.attrs.sequence_length / pieces_of_sequence, pieces = at.in.mixed.shape[0] / rows;
  parallel_for(pieces * heads.value_heads, [&](int64_t task) {
    const int64_t range = task / heads.value_heads;
    HeadOfRange one{at.attrs, heads, at.in.mixed, at.in.g, at.in.beta};
    if constexpr (requires { at.in.positions; }) one.positions = &at.in.positions;
    one.head = task % heads.value_heads;
    one.first = range * rows;
    one.rows = rows;
    body(one, range);
  });
}

// The gradients of one row's q, k, v, decays and beta.
struct TokenGradient {
  Numbers q, k, v, g;
  double beta = 0;
};
// `state`: before the token. `more`: the gradient of the state after it, which becomes that of `state`.
TokenGradient token_backward(const HeadOfRange& one, const Token& token, Numbers state, const Numbers& dout,
                             Numbers& more) {
  const size_t keys = one.keys(), values = one.values();
  const Numbers before = state;
  one.decay(state, token);
  const Numbers left = one.rest(state, token);
  TokenGradient to{Numbers(keys, 0.0), Numbers(keys, 0.0), Numbers(values, 0.0), Numbers(keys, 0.0)};
  Numbers du(values, 0.0);
  for (size_t c = 0; c < keys; ++c) {
    for (size_t j = 0; j < values; ++j) {
      const size_t i = c * values + j;
      to.q[c] += (state[i] + token.k[c] * token.beta * left[j]) * dout[j];
      more[i] += token.q[c] * dout[j];
      to.k[c] += more[i] * token.beta * left[j];
      du[j] += more[i] * token.k[c];
    }
  }
  to.beta = dot(du, left);
  for (size_t j = 0; j < values; ++j) to.v[j] = token.beta * du[j];
  for (size_t c = 0; c < keys; ++c) {
    for (size_t j = 0; j < values; ++j) {
      const size_t i = c * values + j;
      if (one.delta()) {
        to.k[c] -= state[i] * to.v[j];
        more[i] -= token.k[c] * to.v[j];
      }
      more[i] *= token.begins ? 0 : token.decay[c];
      to.g[c] += more[i] * before[i];
    }
  }
  return to;
}

// Calls give() for the gradients of a head's rows, from the last to the first.
void backward(const HeadOfRange& one, Numbers state, Numbers& more, const Array& dout,
              const std::function<void(int64_t, const Token&, const TokenGradient&)>& give) {
  constexpr int64_t kKept = 64;  // states between those that are kept are made again
  std::vector<Numbers> kept;
  for (int64_t t = 0; t < one.rows; ++t) {
    if (t % kKept == 0) kept.push_back(state);
    one.write(state, one.token(t));
  }
  for (int64_t begin = (one.rows - 1) / kKept * kKept; begin >= 0; begin -= kKept) {
    std::vector<Numbers> states{kept[static_cast<size_t>(begin / kKept)]};
    const int64_t end = std::min(one.rows, begin + kKept);
    for (int64_t t = begin; t + 1 < end; ++t) {
      states.push_back(states.back());
      one.write(states.back(), one.token(t));
    }
    for (int64_t t = end - 1; t >= begin; --t) {
      const Token token = one.token(t);
      Numbers seed;
      for (int64_t j = 0; j < one.heads.value_dim; ++j)
        seed.push_back(
            dout.at((one.first + t) * one.heads.value_width() + one.head * one.heads.value_dim + j));
      give(t, token, token_backward(one, token, states[static_cast<size_t>(t - begin)], seed, more));
    }
  }
}

// The gradient of x from that of y = x · rsqrt · scale.
Numbers norm_backward(const HeadOfRange& one, const Numbers& dy, const Numbers& y, double rsqrt,
                      double scale) {
  Numbers dx;
  const double along = one.attrs.l2_norm ? dot(dy, y) / scale : 0;
  for (size_t c = 0; c < dy.size(); ++c) dx.push_back(rsqrt * (scale * dy[c] - y[c] * along));
  return dx;
}

}  // namespace

template <>
void compute(const Arrays<ops::Recurrence>& at) {
  for_heads(at, at.attrs.pieces, [&](const HeadOfRange& one, int64_t range) {
    Numbers state = one.state_of(at.in.before, range);
    for (int64_t t = 0; t < one.rows; ++t) {
      const Token token = one.token(t);
      one.write(state, token);
      one.put_outputs(at.out.o, at.in.skip, t, token, one.read(state, token));
    }
  });
}

template <>
void compute(const Arrays<ops::RecurrenceGrad>& at) {
  const Array &mixed = at.in.mixed, &skip = at.in.skip, &dmixed = at.out.dmixed;
  const ops::RecurrenceHeads heads(at.attrs, mixed.segments);
  const int64_t width = mixed.shape[1], keys = heads.key_dim;
  // Gradients of q and k of each value head, added up below.
  Numbers shares(static_cast<size_t>(mixed.shape[0] * heads.value_heads * 2 * keys));
  for_heads(at, at.attrs.pieces, [&](const HeadOfRange& one, int64_t range) {
    Numbers more = one.state_of(at.in.dlast, range);
    const auto give = [&](int64_t t, const Token& token, const TokenGradient& of) {
      const int64_t row = one.first + t, head = row * heads.value_heads + one.head;
      const Numbers dq = norm_backward(one, of.q, token.q, token.q_rsqrt, at.attrs.scale),
                    dk = norm_backward(one, of.k, token.k, token.k_rsqrt, 1);
      std::copy(dq.begin(), dq.end(), shares.begin() + head * 2 * keys);
      std::copy(dk.begin(), dk.end(), shares.begin() + head * 2 * keys + keys);
      double dg = 0;
      for (int64_t c = 0; c < keys; ++c) {
        dg += of.g[static_cast<size_t>(c)];
        if (one.by_channel()) at.out.dg.put(one.gate(t, c), of.g[static_cast<size_t>(c)]);
      }
      if (!one.by_channel()) at.out.dg.put(one.gate(t, 0), dg);
      at.out.dbeta.put(head, of.beta);
      for (int64_t j = 0; j < heads.value_dim; ++j) {
        const double through =
            skip.present() ? skip.at(one.head) * at.in.dout.at(head * heads.value_dim + j) : 0;
        dmixed.put(row * width + heads.v + one.head * heads.value_dim + j,
                   of.v[static_cast<size_t>(j)] + through);
      }
    };
    backward(one, one.state_of(at.in.before, range), more, at.in.dout, give);
    if (at.out.dbefore.present()) one.put_state(at.out.dbefore, range, more);
  });
  const int64_t group = heads.value_heads / heads.key_heads;
  for (int64_t row = 0; row < mixed.shape[0]; ++row) {
    for (int64_t head = 0; head < heads.key_heads; ++head) {
      for (int64_t c = 0; c < 2 * keys; ++c) {
        double sum = 0;
        for (int64_t of = head * group; of < (head + 1) * group; ++of)
          sum += shares[static_cast<size_t>((row * heads.value_heads + of) * 2 * keys + c)];
        dmixed.put(row * width + (c < keys ? heads.q + c : heads.k + c - keys) + head * keys, sum);
      }
    }
  }
}

template <>
void compute(const Arrays<ops::RecurrenceSkipGrad>& at) {
  const Array &dout = at.in.dout, &mixed = at.in.mixed;
  const ops::RecurrenceHeads heads(at.attrs, mixed.segments);
  for (int64_t head = 0; head < heads.value_heads; ++head) {
    double sum = 0;
    for (int64_t row = 0; row < mixed.shape[0]; ++row) {
      for (int64_t j = head * heads.value_dim; j < (head + 1) * heads.value_dim; ++j)
        sum += dout.at(row * heads.value_width() + j) * mixed.at(row * mixed.shape[1] + heads.v + j);
    }
    at.out.dskip.give(head, sum);
  }
}

template <>
void compute(const Arrays<ops::RecurrenceMap>& at) {
  for_heads(at, at.attrs.pieces, [&](const HeadOfRange& one, int64_t range) {
    const int64_t width = ops::map_width(at.attrs), keys = one.heads.key_dim;
    const int64_t states = keys * one.heads.value_dim,
                  first = (range * one.heads.value_heads + one.head) * width;
    Numbers from_zero(static_cast<size_t>(states), 0.0);
    for (int64_t t = 0; t < one.rows; ++t) one.write(from_zero, one.token(t));
    for (int64_t i = 0; i < states; ++i)
      at.out.map.put(first + width - states + i, from_zero[static_cast<size_t>(i)]);
    if (!one.delta()) {
      double all = 1;
      for (int64_t t = 0; t < one.rows; ++t) {
        const Token token = one.token(t);
        all *= token.begins ? 0 : token.decay[0];
      }
      at.out.map.put(first, all);
      return;
    }
    // The columns of M are those of the identity, carried on with v = 0.
    Numbers m(static_cast<size_t>(keys * keys), 0.0);
    for (int64_t c = 0; c < keys; ++c) m[static_cast<size_t>(c * keys + c)] = 1;
    for (int64_t t = 0; t < one.rows; ++t) {
      const Token token = one.token(t);
      for (int64_t j = 0; j < keys; ++j) {
        double along = 0;
        for (int64_t c = 0; c < keys; ++c) {
          double& entry = m[static_cast<size_t>(c * keys + j)];
          entry *= token.begins ? 0 : token.decay[static_cast<size_t>(c)];
          along += entry * token.k[static_cast<size_t>(c)];
        }
        for (int64_t c = 0; c < keys; ++c)
          m[static_cast<size_t>(c * keys + j)] -= token.beta * token.k[static_cast<size_t>(c)] * along;
      }
    }
    for (int64_t i = 0; i < keys * keys; ++i) at.out.map.put(first + i, m[static_cast<size_t>(i)]);
  });
}

template <>
void compute(const Arrays<ops::RecurrenceStateGrad>& at) {
  for_heads(at, at.attrs.pieces, [&](const HeadOfRange& one, int64_t range) {
    Numbers more(one.keys() * one.values(), 0.0);
    backward(one, more, more, at.in.dout, [](int64_t, const Token&, const TokenGradient&) {});
    one.put_state(at.out.dbefore, range, more);
  });
}

namespace {

// out[to] = M of range `of` · out[from] + more of that range, or Mᵀ: one step of a composition of a head.
struct Composition {
  const ops::RecurrenceAttrs& attrs;
  const Array& map;
  int64_t head, heads;

  void step(const Array& out, int64_t to, int64_t from, int64_t of, bool transposed, const Array& more,
            int64_t more_first) const {
    const int64_t width = ops::map_width(attrs), keys = attrs.key_dim, values = attrs.value_dim;
    const int64_t first = (of * heads + head) * width, states = keys * values;
    const bool delta = attrs.kind == RecurrenceKind::kDelta;
    for (int64_t c = 0; c < keys; ++c) {
      for (int64_t j = 0; j < values; ++j) {
        double sum = more.at(more_first + c * values + j);
        for (int64_t x = delta ? 0 : c; x < (delta ? keys : c + 1); ++x) {
          const int64_t entry = !delta ? 0 : transposed ? x * keys + c : c * keys + x;
          sum += map.at(first + entry) * out.at((from * heads + head) * states + x * values + j);
        }
        out.put((to * heads + head) * states + c * values + j, sum);
      }
    }
  }
  void clear(const Array& out, int64_t range) const {
    const int64_t states = attrs.key_dim * attrs.value_dim;
    for (int64_t i = 0; i < states; ++i) out.put((range * heads + head) * states + i, 0);
  }
};

template <typename Op>
void for_compositions(const Arrays<Op>& at, const std::function<void(const Composition&, int64_t)>& body) {
  const int64_t heads = at.in.map.shape[1] / ops::map_width(at.attrs);
  for (int64_t first = 0; first < at.in.map.shape[0]; first += at.attrs.pieces) {
    for (int64_t head = 0; head < heads; ++head) body({at.attrs, at.in.map, head, heads}, first);
  }
}

}  // namespace

template <>
void compute(const Arrays<ops::ComposeMaps>& at) {
  const int64_t width = ops::map_width(at.attrs), n = width - at.attrs.key_dim * at.attrs.value_dim;
  for_compositions(at, [&](const Composition& of, int64_t first) {
    of.clear(at.out.before, first);
    for (int64_t p = first; p + 1 < first + at.attrs.pieces; ++p)
      of.step(at.out.before, p + 1, p, p, false, at.in.map, (p * of.heads + of.head) * width + n);
  });
}

template <>
void compute(const Arrays<ops::ComposeStateGrads>& at) {
  const int64_t states = at.attrs.key_dim * at.attrs.value_dim;
  for_compositions(at, [&](const Composition& of, int64_t first) {
    const int64_t last = first + at.attrs.pieces - 1;
    of.clear(at.out.dlast, last);
    for (int64_t p = last; p > first; --p)
      of.step(at.out.dlast, p - 1, p, p, true, at.in.dbefore, (p * of.heads + of.head) * states);
  });
}

template <>
void compute(const Arrays<ops::CachedRecurrence>& at) {
  for_heads(at, 1, [&](const HeadOfRange& one, int64_t sequence) {
    const int64_t slot = at.in.slot.index_at(sequence), count = at.in.count.index_at(sequence);
    const bool from_zero = at.in.position.index_at(sequence) == 0 && count > 0;
    Numbers state = one.state_of(from_zero ? Array{} : at.in.cache, slot);
    for (int64_t t = 0; t < one.rows; ++t) {
      const Token token = one.token(t);
      if (t < count) one.write(state, token);
      one.put_outputs(at.out.o, t < count ? at.in.skip : Array{}, t, token,
                      t < count ? one.read(state, token) : Numbers(one.values(), 0.0));
    }
    one.put_state(at.out.cache, slot, state);
  });
}

}  // namespace strata::reference
