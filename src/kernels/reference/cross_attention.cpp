#include <algorithm>
#include <cmath>

#include "kernels/reference/attend.h"

namespace strata::reference {
namespace {

Attention of_two(const Call& call, const Array& q, const Array& kv, const Array& begins, const Array& ends) {
  Attention a(call.attrs.as<ops::CrossAttentionAttrs>(), q.shape[0], q.shape[1], kv.segments[0]);
  a.q = {q, q.shape[1], 0};
  a.k = {kv, kv.shape[1], 0};
  a.v = {kv, kv.shape[1], kv.segments[0]};
  a.seen = [=, length = a.length, encoder_length = a.encoder_length](int64_t n) {
    return Seen{.origin = n / length * encoder_length,
                .begin = begins.present() ? std::max<int64_t>(0, begins.index_at(n)) : 0,
                .end = ends.present() ? ends.index_at(n) : encoder_length};
  };
  return a;
}

// As Raffel et al. (2020) have it, all in fp32.
int64_t bucket_of(const ops::RelativeBiasAttrs& attrs, int64_t buckets, int64_t distance) {
  int64_t first = 0;
  if (attrs.bidirectional) {
    buckets /= 2;
    first = distance > 0 ? buckets : 0;
    distance = distance < 0 ? -distance : distance;
  } else {
    distance = distance < 0 ? -distance : 0;
  }
  const int64_t near = buckets / 2;
  if (distance < near) return first + distance;
  const double range = std::log(static_cast<double>(attrs.max_distance) / static_cast<double>(near));
  const float along = std::log(static_cast<float>(distance) / static_cast<float>(near)) /
                      static_cast<float>(range) * static_cast<float>(buckets - near);
  return first + std::min(buckets - 1, near + static_cast<int64_t>(along));
}

// (q, kv, kv_begin?, kv_end?) → out, lse
void cross_attention(const Call& call) {
  attend(of_two(call, call.in[0], call.in[1], call.in[2], call.in[3]), call.out[0], call.out[1]);
}

// (dout, out, lse, q, kv, kv_begin?, kv_end?) → dq, dkv
void cross_attention_grad(const Call& call) {
  attend_backward(of_two(call, call.in[3], call.in[4], call.in[5], call.in[6]), call.in[0], call.in[1],
                  call.in[2], call.out[0], call.out[1], call.out[1], {});
}

// (q, key cache, value cache, slot, encoder_end) → out
void cached_cross_attention(const Call& call) {
  const Array &q = call.in[0], &keys = call.in[1];
  const int64_t room = keys.shape[1], width = keys.shape[2];
  Attention a(call.attrs.as<ops::CrossAttentionAttrs>(), q.shape[0], q.shape[1], width);
  a.q = {q, q.shape[1], 0};
  a.k = {keys, width, 0};
  a.v = {call.in[2], width, 0};
  a.seen = [&call, room, length = a.length](int64_t n) {
    return Seen{.origin = call.in[3].index_at(n / length) * room, .end = call.in[4].index_at(n / length)};
  };
  attend(a, call.out[0], {});
}

// (kv, key cache, value cache, slot) → key cache, value cache, in place
void store_cross(const Call& call) {
  const Array &kv = call.in[0], &keys = call.out[0], &values = call.out[1];
  const int64_t room = keys.shape[1], width = keys.shape[2], rows = kv.shape[0] / call.in[3].shape[0];
  for (int64_t n = 0; n < kv.shape[0]; ++n) {
    const int64_t to = (call.in[3].index_at(n / rows) * room + n % rows) * width;
    for (int64_t c = 0; c < width; ++c) {
      keys.put(to + c, kv.at(2 * n * width + c));
      values.put(to + c, kv.at((2 * n + 1) * width + c));
    }
  }
}

// (q_begin, k_begin) → ends
void document_ends(const Call& call) {
  const auto& attrs = call.attrs.as<ops::DocumentEndsAttrs>();
  const int64_t length = attrs.sequence_length, encoder_length = attrs.encoder_length;
  for (int64_t n = 0; n < call.in[0].shape[0]; ++n) {
    int64_t end = 0;
    for (int64_t j = 0; j < encoder_length; ++j) {
      if (call.in[1].index_at(n / length * encoder_length + j) == call.in[0].index_at(n)) end = j + 1;
    }
    call.out[0].put(n, static_cast<double>(end));
  }
}

// (table) → bias
void relative_bias(const Call& call) {
  const auto& attrs = call.attrs.as<ops::RelativeBiasAttrs>();
  const Array &table = call.in[0], &bias = call.out[0];
  const int64_t heads = table.shape[1], width = bias.shape[1];
  for (int64_t i = 0; i < heads * width; ++i) {
    const int64_t bucket = bucket_of(attrs, table.shape[0], attrs.first + i % width);
    bias.put(i, table.at(bucket * heads + i / width));
  }
}

// (dbias) → dtable
void relative_bias_grad(const Call& call) {
  const auto& attrs = call.attrs.as<ops::RelativeBiasAttrs>();
  const Array &dbias = call.in[0], &table = call.out[0];
  const int64_t buckets = table.shape[0], heads = table.shape[1], width = dbias.shape[1];
  for (int64_t bucket = 0; bucket < buckets; ++bucket) {
    for (int64_t head = 0; head < heads; ++head) {
      double sum = 0;
      for (int64_t i = 0; i < width; ++i) {
        if (bucket_of(attrs, buckets, attrs.first + i) == bucket) sum += dbias.at(head * width + i);
      }
      table.give(bucket * heads + head, sum);
    }
  }
}

}  // namespace

std::span<const Row> cross_attention_kernels() {
  static const Row kRows[] = {
      {&ops::kCrossAttention, cross_attention},
      {&ops::kCrossAttentionGrad, cross_attention_grad},
      {&ops::kCachedCrossAttention, cached_cross_attention},
      {&ops::kDocumentEnds, document_ends},
      {&ops::kRelativeBias, relative_bias},
      {&ops::kRelativeBiasGrad, relative_bias_grad},
      {&ops::kStoreCross, store_cross},
  };
  return kRows;
}

}  // namespace strata::reference
