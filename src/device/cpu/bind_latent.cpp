// Latent attention: parts of rows put together and taken apart, and attention to a cache of latents.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/parallel.h"
#include "device/cpu/bind.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/latent_heads.h"
#include "ops/latent_attention.h"
#include "tensor/arena.h"

namespace strata::device::cpu_bind {
namespace {

using graph::NodeView;
using graph::Value;

// Rows of up to three parts one behind the other, in bytes; a part that is not there has none.
struct PartsBound {
  int64_t rows;
  std::array<size_t, 3> bytes;

  size_t row_bytes() const { return bytes[0] + bytes[1] + bytes[2]; }
  // copy(place in the whole, place in part i, i, bytes) for each part of each row.
  template <typename Copy>
  void for_parts(const Copy& copy) const {
    parallel_ranges(rows, 64, [&](int64_t begin, int64_t end) {
      for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
        size_t at = row * row_bytes();
        for (size_t i = 0; i < bytes.size(); at += bytes[i++]) {
          if (bytes[i] > 0) copy(at, row * bytes[i], i);
        }
      }
    });
  }
};
PartsBound parts_of(const Value& whole, const std::vector<int64_t>& widths) {
  PartsBound parts{whole.shape[0], {}};
  const size_t skipped = 3 - widths.size();
  for (size_t i = 0; i < widths.size(); ++i)
    parts.bytes[skipped + i] = static_cast<size_t>(widths[i] * size_of(whole.dtype));
  return parts;
}

// (down) → query?, key and value, rotated
BoundKernel split_latents(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& parts = plan_of<PartsBound>(held);
        parts.for_parts([&](size_t whole, size_t part, size_t i) {
          std::memcpy(p[1 + i] + part, p[0] + whole, parts.bytes[i]);
        });
      },
      parts_of(request.view.in(ops::SplitLatents::kDown),
               request.view.attrs<ops::SplitLatentsAttrs>().parts));
}

// (query?, key and value, rotated) → down
BoundKernel join_latents(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& parts = plan_of<PartsBound>(held);
        parts.for_parts([&](size_t whole, size_t part, size_t i) {
          std::memcpy(p[3] + whole, p[i] + part, parts.bytes[i]);
        });
      },
      parts_of(request.view.out(ops::JoinLatents::kDown),
               request.view.out(ops::JoinLatents::kDown).segments));
}

cpu::LatentHeads heads_of(const NodeView& view, const Value& q) {
  const auto& attrs = view.attrs<ops::LatentAttrs>();
  return {.rows = q.shape[0],
          .heads = q.shape[1] / (attrs.plain_dim + attrs.rotary_dim),
          .plain = attrs.plain_dim,
          .rotary = attrs.rotary_dim,
          .value = attrs.value_dim,
          .dtype = q.dtype};
}

// (q, kv, rotated) → qkv
BoundKernel latent_heads(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        cpu::latent_heads_forward(plan_of<cpu::LatentHeads>(held), p[3], p[0], p[1], p[2]);
      },
      heads_of(request.view, request.view.in(ops::LatentHeads::kQ)));
}

// (dqkv) → dq, dkv, drotated
BoundKernel latent_heads_grad(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        cpu::latent_heads_backward(plan_of<cpu::LatentHeads>(held), p[1], p[2], p[3], p[0]);
      },
      heads_of(request.view, request.view.out(ops::LatentHeadsGrad::kDq)));
}

struct CachedPlan {
  cpu::LatentHeads heads;
  int64_t rank = 0, length = 0, room = 0;
  cpu::GemmPlan absorb = {}, expand = {};
  cpu::AttentionPlan attention = {};
  // Of the scratch: queries and what heads mix, in units of latents; then lse, then what kernels ask for.
  int64_t query_bytes = 0, mixed_bytes = 0, lse_bytes = 0;

  int64_t element() const { return size_of(heads.dtype); }
  int64_t width() const { return rank + heads.rotary; }  // of a row of the cache
};

// The heads that a task of the kernel works on: few rows are read straight from the cache, of many the keys
// are packed for each task anew.
int64_t heads_together(int64_t heads, int64_t length) {
  constexpr int64_t kRowsOfDecoding = 16, kHeadsOfPrefill = 8;
  int64_t together = std::min(heads, length <= kRowsOfDecoding ? kRowsOfDecoding / length : kHeadsOfPrefill);
  while (heads % together != 0) --together;
  return together;
}

class CachedLatentAttention {
 public:
  explicit CachedLatentAttention(const CachedPlan& plan)
      : plan_(plan), absorb_(plan.absorb), expand_(plan.expand) {}

  void run(std::byte* const* p) {
    const auto& [rows, heads, plain, rotary, value, dtype] = plan_.heads;
    store(p);
    std::byte *const queries = p[9], *const mixed = queries + plan_.query_bytes,
                     *const lse = mixed + plan_.mixed_bytes, *const scratch = lse + plan_.lse_bytes;
    const int64_t element = plan_.element(), width = plan_.width(), rank = plan_.rank;
    const std::byte *const keys = p[3], *const values = keys + heads * plain * rank * 4;
    const int64_t q_bytes = (plain + rotary) * element, query_bytes = width * element;
    for (int64_t head = 0; head < heads; ++head)
      absorb_.run({.a = p[0] + head * q_bytes,
                   .b = keys + head * plain * rank * 4,
                   .c = queries + head * query_bytes,
                   .scratch = scratch});
    const int64_t plain_bytes = plain * element, rotary_bytes = rotary * element;
    parallel_ranges(rows * heads, 1024, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        std::memcpy(queries + i * query_bytes + rank * element, p[0] + i * q_bytes + plain_bytes,
                    static_cast<size_t>(rotary_bytes));
    });
    cpu::attention_forward(plan_.attention, mixed, f32(lse),
                           {.q = queries, .k = p[4], .v = p[4], .q_start = i32(p[5]), .kv_slot = i32(p[6])},
                           scratch);
    for (int64_t head = 0; head < heads; ++head)
      expand_.run({.a = mixed + head * rank * element,
                   .b = values + head * value * rank * 4,
                   .c = p[7] + head * value * element,
                   .scratch = scratch});
  }

 private:
  void store(std::byte* const* p) const {
    const int64_t latent = plan_.rank * plan_.element(), rotated = plan_.heads.rotary * plan_.element();
    for (int64_t row = 0; row < plan_.heads.rows; ++row) {
      const int64_t s = row / plan_.length;
      const int64_t place = i32(p[6])[s] * plan_.room + i32(p[5])[s] + row % plan_.length;
      std::byte* const to = p[4] + place * (latent + rotated);
      std::memcpy(to, p[1] + row * latent, static_cast<size_t>(latent));
      std::memcpy(to + latent, p[2] + row * rotated, static_cast<size_t>(rotated));
    }
  }

  CachedPlan plan_;
  cpu::Gemm absorb_, expand_;
};

// (q, latent, rotated, w, cache, position, slot) → out, cache
BoundKernel cached_latent_attention(const BindRequest& request) {
  using In = ops::CachedLatentAttention;
  const NodeView& view = request.view;
  const auto& attrs = view.attrs<ops::LatentAttrs>();
  const Value &q = view.in(In::kQ), &cache = view.in(In::kCache);
  CachedPlan plan{.heads = heads_of(view, q),
                  .rank = view.in(In::kLatent).shape[1],
                  .length = attrs.sequence_length,
                  .room = cache.shape[1]};
  const int64_t rows = q.shape[0], heads = plan.heads.heads, width = plan.width();
  // The engine that multiplies by weights as they are.
  const auto engine = q.dtype == DType::kBF16 ? cpu::GemmEngine::kPanels : cpu::GemmEngine::kAuto;
  plan.absorb = cpu::plan_gemm({.role = cpu::GemmRole::kInputGrad,
                                .m = rows,
                                .n = attrs.plain_dim,
                                .k = plan.rank,
                                .dtype = q.dtype,
                                .out_dtype = q.dtype,
                                .x_stride = heads * width,
                                .y_stride = q.shape[1]},
                               request.device, engine);
  plan.expand = cpu::plan_gemm({.role = cpu::GemmRole::kForward,
                                .m = rows,
                                .n = attrs.value_dim,
                                .k = plan.rank,
                                .dtype = q.dtype,
                                .out_dtype = q.dtype,
                                .x_stride = heads * plan.rank,
                                .y_stride = heads * attrs.value_dim},
                               request.device, engine);
  plan.attention = cpu::plan_attention({.batch = rows / plan.length,
                                        .q_len = plan.length,
                                        .kv_len = plan.room,
                                        .heads = heads,
                                        .kv_heads = heads / heads_together(heads, plan.length),
                                        .head_dim = width,
                                        .value_dim = plan.rank,
                                        .scale = static_cast<float>(attrs.scale),
                                        .dtype = q.dtype,
                                        .q_stride = heads * width,
                                        .k_stride = width,
                                        .v_stride = width,
                                        .out_stride = heads * plan.rank,
                                        .kv_batch_stride = plan.room * width,
                                        .one_kv_head = true},
                                       request.device);
  plan.query_bytes = align_up(rows * heads * width * plan.element(), kBufferAlignment);
  plan.mixed_bytes = align_up(rows * heads * plan.rank * plan.element(), kBufferAlignment);
  plan.lse_bytes = align_up(rows * heads * 4, kBufferAlignment);
  const int64_t scratch =
      plan.query_bytes + plan.mixed_bytes + plan.lse_bytes +
      std::max({plan.absorb.scratch_bytes, plan.expand.scratch_bytes, plan.attention.forward_scratch_bytes});
  BoundKernel kernel = bound([](Launch&, void* instance,
                                std::byte* const* p) { instance_of<CachedLatentAttention>(instance).run(p); },
                             plan, scratch);
  kernel.instantiate = instantiate<CachedLatentAttention, CachedPlan>;
  return kernel;
}

}  // namespace

std::span<const Binding> latent_bindings() {
  static const Binding kTable[] = {
      {&ops::kSplitLatents, split_latents},
      {&ops::kJoinLatents, join_latents},
      {&ops::kLatentHeads, latent_heads},
      {&ops::kLatentHeadsGrad, latent_heads_grad},
      {&ops::kCachedLatentAttention, cached_latent_attention},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
