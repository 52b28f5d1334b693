#include <algorithm>
#include <array>
#include <cstring>

#include "base/parallel.h"
#include "device/cpu/cpu.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/latent_heads.h"
#include "kernels/cpu/sparse_attention.h"
#include "ops/latent_attention/latent_attention.h"
#include "tensor/arena.h"

namespace strata::device {
namespace {

// Rows of up to three consecutive parts, in bytes; an absent part has none.
struct LatentParts {
  int64_t rows;
  std::array<size_t, 3> bytes;

  template <typename Side>
  static LatentParts of(int64_t rows, const Side& side) {
    const auto bytes = [](const graph::Ref& part) {
      return part ? static_cast<size_t>(part->shape[1] * size_of(part->dtype)) : size_t{0};
    };
    return {rows, {bytes(side.query), bytes(side.latent), bytes(side.rotated)}};
  }
  // copy(byte of the whole, byte of part i, i) for each part of each row.
  template <typename Copy>
  void for_parts(const Copy& copy) const {
    parallel_ranges(rows, 64, [&](int64_t begin, int64_t end) {
      for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
        size_t at = row * (bytes[0] + bytes[1] + bytes[2]);
        for (size_t i = 0; i < bytes.size(); at += bytes[i++]) {
          if (bytes[i] > 0) copy(at, row * bytes[i], i);
        }
      }
    });
  }
};

cpu::LatentHeads latent_heads_of(const graph::Value& x, int64_t heads, const ops::LatentAttrs& attrs) {
  return {.rows = x.shape[0],
          .heads = heads,
          .plain = attrs.plain_dim,
          .rotary = attrs.rotary_dim,
          .value = attrs.value_dim,
          .dtype = x.dtype};
}
cpu::LatentHeads latent_heads_of(const graph::Value& q, const ops::LatentAttrs& attrs) {
  return latent_heads_of(q, q.shape[1] / attrs.head_dim(), attrs);
}
// kv: [rows, plain keys | values].
cpu::LatentHeads latent_keys_of(const graph::Value& kv, const ops::LatentAttrs& attrs) {
  return latent_heads_of(kv, kv.segments[1] / attrs.value_dim, attrs);
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::SplitLatents>& node) {
  return node.kernel(
      [parts = LatentParts::of(node.in.down->shape[0], node.out)](const Operands<ops::SplitLatents>& at) {
        const std::array to{at.out.query, at.out.latent, at.out.rotated};
        parts.for_parts([&](size_t whole, size_t part, size_t i) {
          std::memcpy(to[i] + part, at.in.down + whole, parts.bytes[i]);
        });
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::JoinLatents>& node) {
  return node.kernel(
      [parts = LatentParts::of(node.out.down->shape[0], node.in)](const Operands<ops::JoinLatents>& at) {
        const std::array from{at.in.query, at.in.latent, at.in.rotated};
        parts.for_parts([&](size_t whole, size_t part, size_t i) {
          std::memcpy(at.out.down + whole, from[i] + part, parts.bytes[i]);
        });
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::LatentHeads>& node) {
  return node.kernel([heads = latent_heads_of(*node.in.q, node.attrs)](const Operands<ops::LatentHeads>& at) {
    cpu::latent_heads_forward(heads, at.out.qkv, at.in.q, at.in.kv, at.in.rotated);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::LatentHeadsGrad>& node) {
  return node.kernel(
      [heads = latent_heads_of(*node.out.dq, node.attrs)](const Operands<ops::LatentHeadsGrad>& at) {
        cpu::latent_heads_backward(heads, at.out.dq, at.out.dkv, at.out.drotated, at.in.dqkv);
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::LatentKeys>& node) {
  return node.kernel([heads = latent_keys_of(*node.in.kv, node.attrs)](const Operands<ops::LatentKeys>& at) {
    cpu::latent_keys_forward(heads, at.out.keys_values, at.in.kv, at.in.rotated);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::LatentKeysGrad>& node) {
  return node.kernel(
      [heads = latent_keys_of(*node.out.dkv, node.attrs)](const Operands<ops::LatentKeysGrad>& at) {
        cpu::latent_keys_backward(heads, at.out.dkv, at.out.drotated, at.in.dkeys_values);
      });
}

namespace {

struct CachedLatentPlan {
  cpu::LatentHeads heads;
  int64_t rank = 0, length = 0, positions = 0;
  cpu::GemmPlan absorb = {}, expand = {};
  cpu::AttentionPlan attention = {};
  bool chosen = false;
  cpu::SparseAttentionPlan sparse = {};  // in its place, to chosen rows of the cache
  // The scratch begins with queries and what heads mix, in units of latents; lse and the kernels' own follow.
  int64_t query_bytes = 0, mixed_bytes = 0, lse_bytes = 0;

  int64_t element() const { return size_of(heads.dtype); }
  int64_t width() const { return rank + heads.rotary; }  // of a row of the cache
};

// The heads that a task of the kernel works on: a small number of rows is read straight from the cache; of
// many the keys are packed again for each task.
int64_t heads_together(int64_t heads, int64_t length) {
  constexpr int64_t kRowsOfDecoding = 16, kHeadsOfPrefill = 8;
  int64_t together = std::min(heads, length <= kRowsOfDecoding ? kRowsOfDecoding / length : kHeadsOfPrefill);
  while (heads % together != 0) --together;
  return together;
}

class CachedLatents {
 public:
  explicit CachedLatents(const CachedLatentPlan& plan)
      : plan_(plan), absorb_(plan.absorb), expand_(plan.expand) {}

  void run(const Operands<ops::CachedLatentAttention>& at) {
    const auto& [rows, heads, plain, rotary, value, dtype] = plan_.heads;
    store(at);
    std::byte *const queries = at.scratch, *const mixed = queries + plan_.query_bytes,
                     *const lse = mixed + plan_.mixed_bytes, *const scratch = lse + plan_.lse_bytes;
    const int64_t element = plan_.element(), rank = plan_.rank;
    const float *const keys = at.in.weight, *const values = keys + heads * plain * rank;
    const int64_t q_bytes = (plain + rotary) * element, query_bytes = plan_.width() * element;
    for (int64_t head = 0; head < heads; ++head)
      absorb_.run({.a = at.in.q + head * q_bytes,
                   .b = keys + head * plain * rank,
                   .c = queries + head * query_bytes,
                   .scratch = scratch});
    const int64_t plain_bytes = plain * element, rotary_bytes = rotary * element;
    parallel_ranges(rows * heads, 1024, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        std::memcpy(queries + i * query_bytes + rank * element, at.in.q + i * q_bytes + plain_bytes,
                    static_cast<size_t>(rotary_bytes));
    });
    if (plan_.chosen) {
      cpu::sparse_attention_forward(
          plan_.sparse, mixed, nullptr, nullptr,
          {.q = queries, .k = at.out.cache, .v = at.out.cache, .chosen = at.in.chosen, .kv_slot = at.in.slot},
          scratch);
    } else {
      cpu::attention_forward(plan_.attention, mixed, reinterpret_cast<float*>(lse),
                             {.q = queries,
                              .k = at.out.cache,
                              .v = at.out.cache,
                              .q_start = at.in.position,
                              .kv_slot = at.in.slot},
                             scratch);
    }
    for (int64_t head = 0; head < heads; ++head)
      expand_.run({.a = mixed + head * rank * element,
                   .b = values + head * value * rank,
                   .c = at.out.out + head * value * element,
                   .scratch = scratch});
  }

 private:
  void store(const Operands<ops::CachedLatentAttention>& at) const {
    const int64_t latent = plan_.rank * plan_.element(), rotated = plan_.heads.rotary * plan_.element();
    for (int64_t row = 0; row < plan_.heads.rows; ++row) {
      const int64_t s = row / plan_.length;
      const int64_t place = at.in.slot[s] * plan_.positions + at.in.position[s] + row % plan_.length;
      std::byte* const to = at.out.cache + place * (latent + rotated);
      std::memcpy(to, at.in.latent + row * latent, static_cast<size_t>(latent));
      std::memcpy(to + latent, at.in.rotated + row * rotated, static_cast<size_t>(rotated));
    }
  }

  CachedLatentPlan plan_;
  cpu::Gemm absorb_, expand_;
};

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::CachedLatentAttention>& node) {
  const auto& attrs = node.attrs;
  const graph::Value &q = *node.in.q, &cache = *node.in.cache;
  CachedLatentPlan plan{.heads = latent_heads_of(q, attrs),
                        .rank = node.in.latent->shape[1],
                        .length = attrs.sequence_length,
                        .positions = cache.shape[1]};
  const int64_t rows = q.shape[0], heads = plan.heads.heads, width = plan.width();
  // The engine that multiplies by plain weights.
  const auto engine = q.dtype == DType::kF32 ? cpu::GemmEngine::kAuto : cpu::GemmEngine::kPanels;
  plan.absorb = cpu::plan_gemm({.role = cpu::GemmRole::kInputGrad,
                                .m = rows,
                                .n = attrs.plain_dim,
                                .k = plan.rank,
                                .dtype = q.dtype,
                                .out_dtype = q.dtype,
                                .x_stride = heads * width,
                                .y_stride = q.shape[1]},
                               node.device, engine);
  plan.expand = cpu::plan_gemm({.role = cpu::GemmRole::kForward,
                                .m = rows,
                                .n = attrs.value_dim,
                                .k = plan.rank,
                                .dtype = q.dtype,
                                .out_dtype = q.dtype,
                                .x_stride = heads * plan.rank,
                                .y_stride = heads * attrs.value_dim},
                               node.device, engine);
  plan.attention = cpu::plan_attention({.batch = rows / plan.length,
                                        .q_len = plan.length,
                                        .kv_len = plan.positions,
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
                                        .kv_batch_stride = plan.positions * width,
                                        .one_kv_head = true},
                                       node.device);
  if (node.in.chosen) {
    plan.chosen = true;
    plan.sparse = cpu::plan_sparse_attention({.sequences = rows / plan.length,
                                              .q_len = plan.length,
                                              .kv_len = plan.positions,
                                              .count = node.in.chosen->shape[1],
                                              .heads = heads,
                                              .kv_heads = 1,
                                              .head_dim = width,
                                              .value_dim = plan.rank,
                                              .scale = static_cast<float>(attrs.scale),
                                              .dtype = q.dtype,
                                              .q_stride = heads * width,
                                              .k_stride = width,
                                              .v_stride = width,
                                              .kv_batch_stride = plan.positions * width},
                                             node.device);
  }
  plan.query_bytes = align_up(rows * heads * width * plan.element(), kBufferAlignment);
  plan.mixed_bytes = align_up(rows * heads * plan.rank * plan.element(), kBufferAlignment);
  plan.lse_bytes = align_up(rows * heads * 4, kBufferAlignment);
  const int64_t scratch =
      plan.query_bytes + plan.mixed_bytes + plan.lse_bytes +
      std::max({plan.absorb.scratch_bytes, plan.expand.scratch_bytes,
                plan.chosen ? plan.sparse.forward_bytes : plan.attention.forward_scratch_bytes});
  return node.kernel_with<CachedLatents>(
      std::make_shared<const CachedLatentPlan>(std::move(plan)),
      [](CachedLatents& state, const Operands<ops::CachedLatentAttention>& at) { state.run(at); }, scratch);
}

}  // namespace strata::device
