#include "ops/reference.h"
#include "kernels/reference/attend.h"
#include "kernels/reference/products.h"
#include "ops/attention/attention.h"
#include "ops/latent_attention/latent_attention.h"

namespace strata::reference {

template <>
void compute(const Arrays<ops::SplitLatents>& at) {
  int64_t first = 0;
  for (const Array* part : {&at.out.query, &at.out.latent, &at.out.rotated}) {
    if (!part->present()) continue;
    copy_columns(*part, 0, at.in.down, first, part->shape[1]);
    first += part->shape[1];
  }
}

template <>
void compute(const Arrays<ops::JoinLatents>& at) {
  int64_t first = 0;
  for (const Array* part : {&at.in.query, &at.in.latent, &at.in.rotated}) {
    if (!part->present()) continue;
    copy_columns(at.out.down, first, *part, 0, part->shape[1]);
    first += part->shape[1];
  }
}

namespace {

// Keys and values of kv and rotated, in the columns of `to` from `first` on.
void join_keys(const Array& to, int64_t first, const Array& kv, const Array& rotated,
               const ops::LatentAttrs& attrs) {
  const int64_t plain = attrs.plain_dim, size = attrs.head_dim(), heads = kv.segments[1] / attrs.value_dim;
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t key = first + head * size;
    copy_columns(to, key, kv, head * plain, plain);
    copy_columns(to, key + plain, rotated, 0, attrs.rotary_dim);
  }
  copy_columns(to, first + heads * size, kv, heads * plain, heads * attrs.value_dim);
}

// The gradients of the inputs of join_keys(), from that of its result.
void split_keys(const Array& dkv, const Array& drotated, const Array& from, int64_t first,
                const ops::LatentAttrs& attrs) {
  const int64_t plain = attrs.plain_dim, size = attrs.head_dim(), heads = dkv.segments[1] / attrs.value_dim;
  for (int64_t head = 0; head < heads; ++head)
    copy_columns(dkv, head * plain, from, first + head * size, plain);
  copy_columns(dkv, heads * plain, from, first + heads * size, heads * attrs.value_dim);
  for (int64_t row = 0; row < from.shape[0]; ++row) {
    for (int64_t c = 0; c < attrs.rotary_dim; ++c) {
      double sum = 0;
      for (int64_t head = 0; head < heads; ++head)
        sum += from.at(row * from.shape[1] + first + head * size + plain + c);
      drotated.put(row * attrs.rotary_dim + c, sum);
    }
  }
}

}  // namespace

template <>
void compute(const Arrays<ops::LatentHeads>& at) {
  const Array& q = at.in.q;
  copy_columns(at.out.qkv, 0, q, 0, q.shape[1]);
  join_keys(at.out.qkv, q.shape[1], at.in.kv, at.in.rotated, at.attrs);
}

template <>
void compute(const Arrays<ops::LatentHeadsGrad>& at) {
  const Array& dq = at.out.dq;
  copy_columns(dq, 0, at.in.dqkv, 0, dq.shape[1]);
  split_keys(at.out.dkv, at.out.drotated, at.in.dqkv, dq.shape[1], at.attrs);
}

template <>
void compute(const Arrays<ops::LatentKeys>& at) {
  join_keys(at.out.keys_values, 0, at.in.kv, at.in.rotated, at.attrs);
}

template <>
void compute(const Arrays<ops::LatentKeysGrad>& at) {
  split_keys(at.out.dkv, at.out.drotated, at.in.dkeys_values, 0, at.attrs);
}

namespace {

// A matrix in fp64 that owns its memory.
struct Made {
  std::vector<double> numbers;
  Array array;

  Made(int64_t rows, int64_t columns) : numbers(static_cast<size_t>(rows * columns)) {
    array.data = reinterpret_cast<std::byte*>(numbers.data());
    array.dtype = DType::kF64;
    array.shape = {rows, columns};
  }
};

}  // namespace

// Keys and values are made of all latents.
template <>
void compute(const Arrays<ops::CachedLatentAttention>& at) {
  const Array &q = at.in.q, &latent = at.in.latent, &w = at.in.weight, &cache = at.out.cache;
  const auto& attrs = at.attrs;
  const int64_t plain = attrs.plain_dim, rotary = attrs.rotary_dim, size = attrs.head_dim();
  const int64_t rank = latent.shape[1], positions = cache.shape[1], width = rank + rotary;
  const int64_t heads = q.shape[1] / size, tokens = cache.shape[0] * positions;
  const auto seen = [&](int64_t n) {
    const int64_t s = n / attrs.sequence_length;
    const int64_t place = at.in.position.index_at(s) + n % attrs.sequence_length;
    return Seen{.origin = at.in.slot.index_at(s) * positions, .end = place + 1, .position = place};
  };
  for (int64_t n = 0; n < q.shape[0]; ++n) {
    const int64_t to = (seen(n).origin + seen(n).position) * width;
    for (int64_t c = 0; c < rank; ++c) cache.put(to + c, latent.at(n * rank + c));
    for (int64_t c = 0; c < rotary; ++c) cache.put(to + rank + c, at.in.rotated.at(n * rotary + c));
  }
  const Made keys(tokens, heads * size), values(tokens, heads * attrs.value_dim);
  const auto made = [&](const Array& of, int64_t columns, int64_t first_row, int64_t stride) {
    products(
        tokens, heads * columns, rank, [&](int64_t i, int64_t s) { return cache.at(i * width + s); },
        [&](int64_t j, int64_t s) { return rounded(w.at((first_row + j) * rank + s), q.dtype); },
        [&](int64_t i, int64_t j, double sum) {
          of.put(i * of.shape[1] + j / columns * stride + j % columns, sum);
        });
  };
  made(keys.array, plain, 0, size);
  made(values.array, attrs.value_dim, heads * plain, attrs.value_dim);
  for (int64_t i = 0; i < tokens * heads; ++i) {
    for (int64_t c = 0; c < rotary; ++c)
      keys.array.put(i * size + plain + c, cache.at(i / heads * width + rank + c));
  }
  Attention a = attention_of(ops::AttentionAttrs{.head_dim = size,
                                                 .sequence_length = attrs.sequence_length,
                                                 .scale = attrs.scale,
                                                 .value_dim = attrs.value_dim},
                             {q, q.shape[1], 0}, q.shape[1], {keys.array, heads * size, 0}, q.shape[1],
                             {values.array, heads * attrs.value_dim, 0}, positions);
  a.seen = seen;
  a.chosen = at.in.chosen;
  attend(a, at.out.out, {});
}

}  // namespace strata::reference
