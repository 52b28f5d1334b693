#include "kernels/cpu/muon.h"

#include <algorithm>

#include "base/parallel.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/muon.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <cmath>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// m += share (g − m); x = g + mix (m − g).
void MoveMomentum(float* m, const float* grad, float* x, float grad_scale, float share, float mix,
                  int64_t n) {
  const Vector scale = constant(grad_scale), part = constant(share), mixed = constant(mix);
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    const Vector g = hn::Mul(load(grad + i, span), scale), old = load(m + i, span);
    const Vector now = store(m + i, hn::MulAdd(part, hn::Sub(g, old), old), span);
    store(x + i, hn::MulAdd(mixed, hn::Sub(now, g), g), span);
  });
}

// to = factor · from; to may be from.
void Scale(const float* from, float* to, float factor, int64_t n) {
  const Vector scale = constant(factor);
  for_vectors(
      n, [&](int64_t i, auto span) HWY_ATTR { store(to + i, hn::Mul(scale, load(from + i, span)), span); });
}

// a = b · a + c · squared.
void Polynomial(float* a, const float* squared, float b, float c, int64_t n) {
  const Vector first = constant(b), second = constant(c);
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    store(a + i, hn::MulAdd(first, load(a + i, span), hn::Mul(second, load(squared + i, span))), span);
  });
}

// p = keep · p − step · x.
void Apply(float* p, const float* x, float keep_p, float step, int64_t n) {
  const Vector kept = constant(keep_p), rate = constant(step);
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    store(p + i, hn::NegMulAdd(rate, load(x + i, span), hn::Mul(load(p + i, span), kept)), span);
  });
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(MoveMomentum);
HWY_EXPORT(Scale);
HWY_EXPORT(Polynomial);
HWY_EXPORT(Apply);

namespace {

constexpr int64_t kChunk = 16384;
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315, kEps = 1e-7;

int64_t padded_bytes(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

int64_t lay_out(const MuonPlan& plan, std::byte* memory, MuonScratch* scratch) {
  const int64_t short_side = std::min(plan.rows, plan.columns);
  const int64_t matrix = padded_bytes(plan.rows * plan.columns * 4);
  const int64_t gram = padded_bytes(short_side * short_side * 4);
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    std::byte* const place = memory == nullptr ? nullptr : memory + at;
    at += padded_bytes(bytes);
    return place;
  };
  scratch->x = reinterpret_cast<float*>(take(matrix));
  scratch->next = reinterpret_cast<float*>(take(matrix));
  scratch->gram = reinterpret_cast<float*>(take(gram));
  // Also holds the partial sums of the norm.
  scratch->square =
      reinterpret_cast<float*>(take(std::max(gram, norm_partials(plan.rows * plan.columns) * 8)));
  scratch->encoded = take(plan.encoding.plain ? 0 : plan.encoding.bytes);
  scratch->gemm =
      take(std::max({plan.gram.scratch_bytes, plan.square.scratch_bytes, plan.product.scratch_bytes}));
  return at;
}

// to[columns, rows] = from[rows, columns]ᵀ, tile by tile.
void transpose(const float* from, int64_t rows, int64_t columns, float* to) {
  constexpr int64_t kTile = 32;
  parallel_ranges(columns, kTile, [&](int64_t begin, int64_t end) {
    for (int64_t first = 0; first < rows; first += kTile) {
      const int64_t last = std::min(rows, first + kTile);
      for (int64_t j = begin; j < end; ++j) {
        for (int64_t i = first; i < last; ++i) to[j * rows + i] = from[i * columns + j];
      }
    }
  });
}

}  // namespace

MuonPlan plan_muon(int64_t rows, int64_t columns, const hardware::DeviceSpec& device) {
  MuonPlan plan;
  plan.rows = rows;
  plan.columns = columns;
  const int64_t n = std::min(rows, columns), m = std::max(rows, columns);
  plan.gram = plan_gemm({.role = GemmRole::kWeightGrad, .m = m, .n = n, .k = n}, device);
  plan.square = plan_gemm({.role = GemmRole::kWeightGrad, .m = n, .n = n, .k = n}, device);
  plan.product = plan_gemm({.role = GemmRole::kInputGrad, .m = m, .n = n, .k = n}, device);
  plan.encoding = plan_weight_encoding(GemmRole::kInputGrad, n, n, DType::kF32, device);
  MuonScratch scratch;
  plan.scratch_bytes = lay_out(plan, nullptr, &scratch);
  return plan;
}

Muon::Muon(const MuonPlan& plan)
    : plan_(plan), gram_(plan.gram), square_(plan.square), product_(plan.product), packer_(plan.encoding) {}

float* Muon::orthogonalize(const float* from, const MuonScratch& scratch, int64_t steps) {
  MuonScratch at = scratch;
  const int64_t count = plan_.rows * plan_.columns;
  const bool wide = plan_.rows < plan_.columns;
  const int64_t n = std::min(plan_.rows, plan_.columns);
  auto* const partials = reinterpret_cast<double*>(at.square);
  double squares = 0;
  sum_of_squares_partials(from, count, partials);
  reduce_sum(partials, norm_partials(count), &squares);
  const auto scale = HWY_DYNAMIC_DISPATCH(Scale);
  const auto inverse = static_cast<float>(1 / (std::sqrt(squares) + kEps));
  parallel_ranges(count, kChunk, [&](int64_t begin, int64_t end) {
    scale(from + begin, at.x + begin, inverse, end - begin);
  });
  if (squares == 0) return at.x;
  if (wide) {
    transpose(at.x, plan_.rows, plan_.columns, at.next);
    std::swap(at.x, at.next);
  }

  // x (3.4445 + polynomial): saves one GEMM over the longer dimension compared with a separate linear term.
  const auto polynomial = HWY_DYNAMIC_DISPATCH(Polynomial);
  for (int64_t step = 0; step < steps; ++step) {
    gram_.run({.a = at.x, .b = at.x, .c = at.gram, .scratch = at.gemm});
    square_.run({.a = at.gram, .b = at.gram, .c = at.square, .scratch = at.gemm});
    parallel_ranges(n * n, kChunk, [&](int64_t begin, int64_t end) {
      polynomial(at.gram + begin, at.square + begin, static_cast<float>(kB), static_cast<float>(kC),
                 end - begin);
    });
    for (int64_t i = 0; i < n; ++i) at.gram[i * n + i] += static_cast<float>(kA);
    const void* factor = at.gram;
    if (!plan_.encoding.plain) {
      packer_.pack(at.encoded, at.gram);
      factor = at.encoded;
    }
    product_.run({.a = at.x, .b = factor, .c = at.next, .scratch = at.gemm});
    std::swap(at.x, at.next);
  }
  if (wide) {
    transpose(at.x, plan_.columns, plan_.rows, at.next);
    std::swap(at.x, at.next);
  }
  return at.x;
}

void Muon::update(float* master, float* momentum, const float* grad, const UpdateScalars* scalars,
                  const MuonConstants& c, void* memory) {
  const int64_t count = plan_.rows * plan_.columns;
  if (scalars->skip != 0 || count == 0) return;
  MuonScratch at;
  lay_out(plan_, static_cast<std::byte*>(memory), &at);
  muon_momentum(count, momentum, grad, at.x, scalars, c);
  muon_apply(count, master, orthogonalize(at.x, at, c.steps), scalars, c);
}

void Muon::newton_schulz(const float* x, float* y, int64_t steps, void* memory) {
  const int64_t count = plan_.rows * plan_.columns;
  if (count == 0) return;
  MuonScratch at;
  lay_out(plan_, static_cast<std::byte*>(memory), &at);
  const float* const result = orthogonalize(x, at, steps);
  parallel_ranges(count, kChunk,
                  [&](int64_t begin, int64_t end) { std::copy(result + begin, result + end, y + begin); });
}

void muon_momentum(int64_t n, float* momentum, const float* grad, float* x, const UpdateScalars* scalars,
                   const MuonConstants& c) {
  const auto move = HWY_DYNAMIC_DISPATCH(MoveMomentum);
  const float grad_scale = scalars->grad_scale, share = static_cast<float>(1 - c.momentum);
  const float mix = c.nesterov ? static_cast<float>(c.momentum) : 1.0f;
  parallel_ranges(n, kChunk, [&](int64_t begin, int64_t end) {
    move(momentum + begin, grad + begin, x + begin, grad_scale, share, mix, end - begin);
  });
}

void muon_apply(int64_t n, float* master, const float* x, const UpdateScalars* scalars,
                const MuonConstants& c) {
  const double rate = double{scalars->lr} * c.lr_scale;
  const auto apply = HWY_DYNAMIC_DISPATCH(Apply);
  parallel_ranges(n, kChunk, [&](int64_t begin, int64_t end) {
    apply(master + begin, x + begin, static_cast<float>(1 - rate * c.weight_decay), static_cast<float>(rate),
          end - begin);
  });
}

}  // namespace strata::cpu
#endif
