#include "ops/latent_attention.h"

#include "kernels/reference/attend.h"
#include "kernels/reference/products.h"

namespace strata::reference {
namespace {

// to[row, first + c] = from[row, from_first + c] for c < n.
void copy_columns(const Array& to, int64_t first, const Array& from, int64_t from_first, int64_t n) {
  for (int64_t row = 0; row < to.shape[0]; ++row) {
    for (int64_t c = 0; c < n; ++c)
      to.put(row * to.shape[1] + first + c, from.at(row * from.shape[1] + from_first + c));
  }
}

// (down) → query?, key and value, rotated
void split_latents(const Call& call) {
  const std::vector<int64_t>& widths = call.attrs.as<ops::SplitLatentsAttrs>().parts;
  int64_t first = 0;
  for (size_t i = 0; i < widths.size(); ++i) {
    copy_columns(call.out[3 - widths.size() + i], 0, call.in[0], first, widths[i]);
    first += widths[i];
  }
}

// (query?, key and value, rotated) → down
void join_latents(const Call& call) {
  int64_t first = 0;
  for (const Array& part : call.in) {
    if (!part.present()) continue;
    copy_columns(call.out[0], first, part, 0, part.shape[1]);
    first += part.shape[1];
  }
}

// (q, kv, rotated) → qkv
void latent_heads(const Call& call) {
  const auto& attrs = call.attrs.as<ops::LatentAttrs>();
  const Array &q = call.in[0], &kv = call.in[1], &rotated = call.in[2], &qkv = call.out[0];
  const int64_t plain = attrs.plain_dim, size = plain + attrs.rotary_dim, heads = q.shape[1] / size;
  copy_columns(qkv, 0, q, 0, q.shape[1]);
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t key = q.shape[1] + head * size;
    copy_columns(qkv, key, kv, head * plain, plain);
    copy_columns(qkv, key + plain, rotated, 0, attrs.rotary_dim);
  }
  copy_columns(qkv, 2 * q.shape[1], kv, heads * plain, heads * attrs.value_dim);
}

// (dqkv) → dq, dkv, drotated
void latent_heads_grad(const Call& call) {
  const auto& attrs = call.attrs.as<ops::LatentAttrs>();
  const Array &dqkv = call.in[0], &dq = call.out[0], &dkv = call.out[1], &drotated = call.out[2];
  const int64_t plain = attrs.plain_dim, size = plain + attrs.rotary_dim, heads = dq.shape[1] / size;
  copy_columns(dq, 0, dqkv, 0, dq.shape[1]);
  for (int64_t head = 0; head < heads; ++head)
    copy_columns(dkv, head * plain, dqkv, dq.shape[1] + head * size, plain);
  copy_columns(dkv, heads * plain, dqkv, 2 * dq.shape[1], heads * attrs.value_dim);
  for (int64_t row = 0; row < dq.shape[0]; ++row) {
    for (int64_t c = 0; c < attrs.rotary_dim; ++c) {
      double sum = 0;
      for (int64_t head = 0; head < heads; ++head)
        sum += dqkv.at(row * dqkv.shape[1] + dq.shape[1] + head * size + plain + c);
      drotated.put(row * attrs.rotary_dim + c, sum);
    }
  }
}

// In fp64, of rows in memory of its own.
struct Made {
  std::vector<double> numbers;
  Array array;

  Made(int64_t rows, int64_t columns) : numbers(static_cast<size_t>(rows * columns)) {
    array.data = reinterpret_cast<std::byte*>(numbers.data());
    array.dtype = DType::kF64;
    array.shape = {rows, columns};
  }
};

// (q, latent, rotated, w, cache, position, slot) → out, cache: keys and values are made of all latents.
void cached_latent_attention(const Call& call) {
  const auto& attrs = call.attrs.as<ops::LatentAttrs>();
  const Array &q = call.in[0], &latent = call.in[1], &rotated = call.in[2], &w = call.in[3],
              &cache = call.in[4];
  const int64_t plain = attrs.plain_dim, rotary = attrs.rotary_dim, size = plain + rotary;
  const int64_t rank = latent.shape[1], room = cache.shape[1], width = rank + rotary;
  const int64_t heads = q.shape[1] / size, tokens = cache.shape[0] * room;
  Attention a(ops::AttentionAttrs{.head_dim = size,
                                  .sequence_length = attrs.sequence_length,
                                  .scale = attrs.scale,
                                  .value_dim = attrs.value_dim},
              q.shape[0], q.shape[1], q.shape[1]);
  a.seen = [&call, room, length = a.length](int64_t n) {
    const int64_t place = call.in[5].index_at(n / length) + n % length;
    return Seen{
        .origin = call.in[6].index_at(n / length) * room, .begin = 0, .end = place + 1, .position = place};
  };
  for (int64_t n = 0; n < q.shape[0]; ++n) {
    const Seen seen = a.seen(n);
    const int64_t to = (seen.origin + seen.position) * width;
    for (int64_t c = 0; c < rank; ++c) cache.put(to + c, latent.at(n * rank + c));
    for (int64_t c = 0; c < rotary; ++c) cache.put(to + rank + c, rotated.at(n * rotary + c));
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
  a.q = {q, q.shape[1], 0};
  a.k = {keys.array, heads * size, 0};
  a.v = {values.array, heads * attrs.value_dim, 0};
  attend(a, call.out[0], {});
}

}  // namespace

std::span<const Row> latent_attention_kernels() {
  static const Row kRows[] = {
      {&ops::kSplitLatents, split_latents},
      {&ops::kJoinLatents, join_latents},
      {&ops::kLatentHeads, latent_heads},
      {&ops::kLatentHeadsGrad, latent_heads_grad},
      {&ops::kCachedLatentAttention, cached_latent_attention},
  };
  return kRows;
}

}  // namespace strata::reference
