#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "kernels/reference/attend.h"
#include "ops/take_part.h"
#include "ops/temper.h"

namespace strata::reference {
namespace {

// Attention over [q | k | v]: row t of a sequence sees the keys from kv_begin (or its window) to itself, or
// to kv_end where not causal.
Attention of_sequences(const Call& call, const Array& qkv, const Array& begins, const Array& ends,
                       const Array& bias, const Array& sinks) {
  const auto& attrs = call.attrs.as<ops::AttentionAttrs>();
  Attention a(attrs, qkv.shape[0], qkv.segments[0], qkv.segments[1]);
  a.q = {qkv, qkv.shape[1], 0};
  a.k = {qkv, qkv.shape[1], qkv.segments[0]};
  a.v = {qkv, qkv.shape[1], qkv.segments[0] + qkv.segments[1]};
  a.bias = bias;
  a.sinks = sinks;
  const int64_t window = attrs.window, length = a.length;
  const bool causal = attrs.causal;
  a.seen = [=](int64_t n) {
    const int64_t t = n % length;
    Seen seen{.origin = n - t, .end = causal ? t + 1 : length, .position = t};
    if (begins.present()) seen.begin = std::max<int64_t>(0, begins.index_at(n));
    if (ends.present()) seen.end = std::min(seen.end, ends.index_at(n));
    if (window > 0) seen.begin = std::max(seen.begin, t - window + 1);
    return seen;
  };
  return a;
}

// () → table[positions, pairs, cosine | sine]
void rope_table(const Call& call) {
  const Array& table = call.out[0];
  const auto& [positions, frequencies, magnitude] = call.attrs.as<ops::RopeTableAttrs>();
  const auto pairs = static_cast<int64_t>(frequencies.size());
  for (int64_t i = 0; i < positions * pairs; ++i) {
    const int64_t position = i / pairs;
    const double angle = static_cast<double>(position) * frequencies[static_cast<size_t>(i % pairs)];
    table.put(2 * i, magnitude * std::cos(angle));
    table.put(2 * i + 1, magnitude * std::sin(angle));
  }
}

// (qkv, table, positions) → qkv
void rope(const Call& call) {
  const Array &qkv = call.in[0], &table = call.in[1], &out = call.out[0];
  const auto& attrs = call.attrs.as<ops::RopeAttrs>();
  const int64_t head_dim = attrs.head_dim;
  const int64_t half = table.shape[1], row = qkv.shape[1];
  const int64_t width = qkv.segments.empty() ? row : qkv.segments[0] + qkv.segments[1];
  const int64_t heads = width / head_dim;
  const double turn = attrs.inverse ? -1 : 1;
  parallel_for(qkv.shape[0], [&](int64_t n) {
    const int64_t angles = call.in[2].index_at(n) * half * 2;
    if (out.data != qkv.data) {
      for (int64_t c = 0; c < row; ++c) out.put(n * row + c, qkv.at(n * row + c));
    }
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < half; ++i) {
        const int64_t begin = n * row + head * head_dim + attrs.first;
        const int64_t first = begin + (attrs.adjacent ? 2 * i : i),
                      second = first + (attrs.adjacent ? 1 : half);
        const double cosine = table.at(angles + 2 * i), sine = turn * table.at(angles + 2 * i + 1);
        const double a = qkv.at(first), b = qkv.at(second);
        out.put(first, a * cosine - b * sine);
        out.put(second, b * cosine + a * sine);
      }
    }
  });
}

// (x, rank) → y
void take_part(const Call& call) {
  const auto& attrs = call.attrs.as<ops::TakePartAttrs>();
  const int64_t numbers = call.out[0].shape[0];
  const int64_t first = attrs.ranks > 1 ? graph::coordinates_in(call.in[1].data)[attrs.axis] * numbers : 0;
  for (int64_t i = 0; i < numbers; ++i) call.out[0].put(i, call.in[0].at(first + i));
}
// (dy, rank) → dx
void take_part_grad(const Call& call) {
  const auto& attrs = call.attrs.as<ops::TakePartAttrs>();
  const int64_t numbers = call.in[0].shape[0];
  const int64_t first = attrs.ranks > 1 ? graph::coordinates_in(call.in[1].data)[attrs.axis] * numbers : 0;
  for (int64_t i = 0; i < attrs.ranks * numbers; ++i)
    call.out[0].give(i, i >= first && i < first + numbers ? call.in[0].at(i - first) : 0);
}

// (qkv, positions) → y
void temper(const Call& call) {
  const auto& attrs = call.attrs.as<ops::TemperAttrs>();
  const Array& qkv = call.in[0];
  const int64_t columns = qkv.shape[1];
  for (int64_t i = 0; i < qkv.shape.elements(); ++i) {
    const auto turns = static_cast<double>((call.in[1].index_at(i / columns) + 1) / attrs.floor);
    const bool is_query = i % columns < qkv.segments[0];
    call.out[0].put(i, qkv.at(i) * (is_query ? 1 + attrs.scale * std::log1p(turns) : 1));
  }
}

// (positions, begins?) → begins of chunks
void chunk_begins(const Call& call) {
  const int64_t size = call.attrs.as<ops::ChunkAttrs>().size;
  for (int64_t n = 0; n < call.in[0].shape.elements(); ++n) {
    const int64_t begin = call.in[1].present() ? call.in[1].index_at(n) : 0;
    call.out[0].put(n, static_cast<double>(begin + call.in[0].index_at(n) / size * size));
  }
}

// (qkv, kv_begin?, kv_end?, bias?, sinks?) → out, lse
void attention(const Call& call) {
  attend(of_sequences(call, call.in[0], call.in[1], call.in[2], call.in[3], call.in[4]), call.out[0],
         call.out[1]);
}

// (dout, out, lse, qkv, kv_begin?, kv_end?, bias?) → dqkv, dbias?
void attention_grad(const Call& call) {
  const Array& dqkv = call.out[0];
  attend_backward(of_sequences(call, call.in[3], call.in[4], call.in[5], call.in[6], {}), call.in[0],
                  call.in[1], call.in[2], dqkv, dqkv, dqkv, call.out[1]);
}

// (dout, out, lse, sinks) → dsinks
void sink_grad(const Call& call) {
  const auto& attrs = call.attrs.as<ops::SinkGradAttrs>();
  const Array &dout = call.in[0], &out = call.in[1], &lse = call.in[2];
  const int64_t size = attrs.head_dim, heads = out.shape[1] / size, length = attrs.sequence_length;
  for (int64_t head = 0; head < heads; ++head) {
    double sum = 0;
    for (int64_t n = 0; n < out.shape[0]; ++n) {
      double product = 0;
      for (int64_t c = 0; c < size; ++c)
        product += out.at((n * heads + head) * size + c) * dout.at((n * heads + head) * size + c);
      sum -=
          std::exp(call.in[3].at(head) - lse.at((n / length * heads + head) * length + n % length)) * product;
    }
    call.out[0].give(head, sum);
  }
}

// (qkv, key cache, value cache, position, slot, bias?, sinks?) → out, key cache, value cache
void cached_attention(const Call& call) {
  const Array &qkv = call.in[0], &keys = call.in[1], &values = call.in[2];
  const auto& attrs = call.attrs.as<ops::AttentionAttrs>();
  const int64_t room = keys.shape[1], width = keys.shape[2], window = attrs.window;
  Attention a(attrs, qkv.shape[0], qkv.segments[0], qkv.segments[1]);
  a.q = {qkv, qkv.shape[1], 0};
  a.k = {keys, width, 0};
  a.v = {values, width, 0};
  a.bias = call.in[5];
  a.sinks = call.in[6];
  a.seen = [&call, room, window, chunked = attrs.chunked, length = a.length](int64_t n) {
    const int64_t place = call.in[3].index_at(n / length) + n % length;
    return Seen{.origin = call.in[4].index_at(n / length) * room,
                .begin = window == 0 ? 0
                         : chunked   ? place / window * window
                                     : std::max<int64_t>(0, place - window + 1),
                .end = place + 1,
                .position = place};
  };
  for (int64_t n = 0; n < qkv.shape[0]; ++n) {
    const Seen seen = a.seen(n);
    const int64_t to = (seen.origin + seen.position) * width, from = n * qkv.shape[1] + qkv.segments[0];
    for (int64_t c = 0; c < width; ++c) {
      keys.put(to + c, qkv.at(from + c));
      values.put(to + c, qkv.at(from + width + c));
    }
  }
  attend(a, call.out[0], {});
}

}  // namespace

std::span<const Row> attention_kernels() {
  static const Row kRows[] = {
      {&ops::kRope, rope},
      {&ops::kAttention, attention},
      {&ops::kAttentionGrad, attention_grad},
      {&ops::kCachedAttention, cached_attention},
      {&ops::kSinkGrad, sink_grad},
      {&ops::kTakePart, take_part},
      {&ops::kTakePartGrad, take_part_grad},
      {&ops::kTemper, temper},
      {&ops::kChunkBegins, chunk_begins},
      {&ops::kRopeTable, rope_table},
  };
  return kRows;
}

}  // namespace strata::reference
