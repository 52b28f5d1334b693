// Optimizers other than AdamW, as src/optim defines them.
#include "kernels/gpu/step_factors.cuh"

namespace strata::gpu {
namespace updates {

// --- Lion, ADOPT

__device__ __forceinline__ void lion(const ElementUpdateArgs& args) {
  const GpuUpdateScalars& scalars = *args.scalars;
  if (scalars.skip != 0) return;
  const Rate rate(scalars, args.lr_scale, args.weight_decay);
  const auto beta1 = static_cast<float>(args.beta1), share1 = static_cast<float>(1.0 - args.beta1),
             beta2 = static_cast<float>(args.beta2), share2 = static_cast<float>(1.0 - args.beta2);
  for_grid(args.n, fours(args.master, args.m, args.grad), [&](int64_t i, auto count) {
    float p[count.value], m[count.value], g[count.value];
    load(args.grad + i, g);
    load(args.m + i, m);
    load(args.master + i, p);
#pragma unroll
    for (int k = 0; k < count.value; ++k) {
      g[k] *= scalars.grad_scale;
      const float mixed = fmaf(beta1, m[k], share1 * g[k]);
      p[k] = fmaf(-rate.step, mixed > 0.0f ? 1.0f : mixed < 0.0f ? -1.0f : 0.0f, p[k] * rate.keep);
      m[k] = fmaf(beta2, m[k], share2 * g[k]);
    }
    store(args.master + i, p);
    store(args.m + i, m);
  });
}

__device__ __forceinline__ void adopt(const ElementUpdateArgs& args) {
  const GpuUpdateScalars& scalars = *args.scalars;
  if (scalars.skip != 0) return;
  const Rate rate(scalars, args.lr_scale, args.weight_decay);
  const auto share1 = static_cast<float>(1.0 - args.beta1), beta2 = static_cast<float>(args.beta2),
             share2 = static_cast<float>(1.0 - args.beta2);
  const bool first = scalars.update <= 1;
  const auto most = static_cast<float>(sqrt(sqrt(static_cast<double>(first ? 0 : scalars.update - 1))));
  for_grid(args.n, fours(args.master, args.m, args.v, args.grad), [&](int64_t i, auto count) {
    float p[count.value], m[count.value], v[count.value], g[count.value];
    load(args.grad + i, g);
    load(args.v + i, v);
    load(args.m + i, m);
    load(args.master + i, p);
#pragma unroll
    for (int k = 0; k < count.value; ++k) {
      g[k] *= scalars.grad_scale;
      if (!first) {
        const float normed = fminf(fmaxf(g[k] / fmaxf(sqrtf(v[k]), args.eps), -most), most);
        m[k] = fmaf(share1, normed - m[k], m[k]);
        p[k] = fmaf(-rate.step, m[k], p[k] * rate.keep);
      }
      v[k] = first ? g[k] * g[k] : fmaf(share2 * g[k], g[k], beta2 * v[k]);
    }
    store(args.v + i, v);
    if (first) return;
    store(args.m + i, m);
    store(args.master + i, p);
  });
}

// --- AdamW with moments of a byte

constexpr int kCodes = 256;

// The code of the value nearest to x, of two equally near ones the lower.
__device__ __forceinline__ int nearest_code(const float* map, float x) {
  int code = 0;
  for (int step = kCodes / 2; step > 0; step /= 2) {
    // The border below code + step.
    const float border = (map[code + step - 1] + map[code + step]) / 2.0f;
    if (x > border) code += step;
  }
  return code;
}

__device__ __forceinline__ void adamw8bit(const AdamW8BitArgs& args) {
  __shared__ float m_map[kCodes], v_map[kCodes], shared[2 * kMostWarps];
  const GpuUpdateScalars& scalars = *args.scalars;
  if (scalars.skip != 0) return;
  const int thread = static_cast<int>(threadIdx.x);
  m_map[thread] = args.m_map[thread];
  v_map[thread] = args.v_map[thread];
  const AdamWFactors factors(scalars, args.beta1, args.beta2, args.lr_scale, args.weight_decay);
  const int64_t block = blockIdx.x, i = block * kCodes + thread;
  const bool inside = i < args.n;
  float m = 0.0f, v = 0.0f;
  if (inside) {
    const float g = args.grad[i] * scalars.grad_scale;
    m = fmaf(static_cast<float>(args.beta1), m_map[args.m[i]] * args.m_scale[block],
             static_cast<float>(1.0 - args.beta1) * g);
    v = fmaf(static_cast<float>(1.0 - args.beta2) * g, g,
             static_cast<float>(args.beta2) * (v_map[args.v[i]] * args.v_scale[block]));
    args.master[i] =
        fmaf(-factors.step, m / fmaf(sqrtf(v), factors.of_root_v, args.eps), args.master[i] * factors.keep);
  }
  float most[2] = {fabsf(m), v};
  __syncthreads();  // all have read the scales
  reduce_block<Greatest>(most, shared);
  if (thread == 0) args.m_scale[block] = most[0], args.v_scale[block] = most[1];
  if (!inside) return;
  args.m[i] = static_cast<uint8_t>(nearest_code(m_map, most[0] > 0.0f ? m / most[0] : 0.0f));
  args.v[i] = static_cast<uint8_t>(nearest_code(v_map, most[1] > 0.0f ? v / most[1] : 0.0f));
}

// --- Muon

__device__ __forceinline__ void muon_momentum(const MuonArgs& args) {
  const GpuUpdateScalars& scalars = *args.scalars;
  const auto share = static_cast<float>(1.0 - args.momentum), mix = static_cast<float>(args.momentum);
  for_grid(args.n, fours(args.m, args.x, args.grad), [&](int64_t i, auto count) {
    float m[count.value], g[count.value], x[count.value] = {};
    if (scalars.skip == 0) {
      load(args.grad + i, g);
      load(args.m + i, m);
#pragma unroll
      for (int k = 0; k < count.value; ++k) {
        g[k] *= scalars.grad_scale;
        m[k] = fmaf(share, g[k] - m[k], m[k]);
        x[k] = args.nesterov != 0 ? fmaf(mix, m[k] - g[k], g[k]) : m[k];
      }
      store(args.m + i, m);
    }
    store(args.x + i, x);
  });
}
__device__ __forceinline__ void muon_scale(const MuonArgs& args) {
  const auto factor = static_cast<float>(1.0 / (sqrt(*args.squares) + 1e-7));
  for_grid(args.n, fours(args.x), [&](int64_t i, auto count) {
    float x[count.value];
    load(args.x + i, x);
#pragma unroll
    for (int k = 0; k < count.value; ++k) x[k] *= factor;
    store(args.x + i, x);
  });
}
__device__ __forceinline__ void muon_polynomial(const MuonArgs& args) {
  for_grid(args.n, fours(args.x, args.other), [&](int64_t i, auto count) {
    float x[count.value], other[count.value];
    load(args.x + i, x);
    load(args.other + i, other);
#pragma unroll
    for (int k = 0; k < count.value; ++k) {
      const float sum = fmaf(args.b, x[k], args.c * other[k]);
      x[k] = (i + k) % (args.side + 1) == 0 ? sum + args.a : sum;
    }
    store(args.x + i, x);
  });
}
__device__ __forceinline__ void muon_apply(const MuonArgs& args) {
  const GpuUpdateScalars& scalars = *args.scalars;
  if (scalars.skip != 0) return;
  const Rate rate(scalars, args.lr_scale, args.weight_decay);
  for_grid(args.n, fours(args.master, args.x), [&](int64_t i, auto count) {
    float p[count.value], x[count.value];
    load(args.master + i, p);
    load(args.x + i, x);
#pragma unroll
    for (int k = 0; k < count.value; ++k) p[k] = fmaf(-rate.step, x[k], p[k] * rate.keep);
    store(args.master + i, p);
  });
}

// --- Adafactor

// Sum over the threads of a block of 256, for thread 0.
__device__ __forceinline__ double sum_of_block(double value) {
  __shared__ double shared[256];
  const int thread = static_cast<int>(threadIdx.x);
  shared[thread] = value;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) shared[thread] += shared[thread + half];
  }
  return shared[0];
}

struct AdafactorStep {
  const AdafactorArgs& args;
  const GpuUpdateScalars& scalars;
  float least;
  __device__ __forceinline__ explicit AdafactorStep(const AdafactorArgs& of)
      : args(of), scalars(*of.scalars), least(static_cast<float>(of.eps1 * of.eps1)) {}
  __device__ __forceinline__ float g(int64_t i) const { return args.grad[i] * scalars.grad_scale; }
  // A mean moved towards that of this step's squares.
  __device__ __forceinline__ float moved(float mean, double sum, int64_t count) const {
    const auto share = static_cast<float>(pow(static_cast<double>(scalars.update), args.beta2_decay));
    return fmaf(share, static_cast<float>(sum / static_cast<double>(count)) - mean, mean);
  }
  // The factor of this row on the second moments of columns.
  __device__ __forceinline__ float of_row(int64_t row) const {
    if (args.row == nullptr) return 1.0f;
    const double mean = *args.of_rows / static_cast<double>(args.rows);
    return static_cast<float>(static_cast<double>(args.row[row]) / fmax(mean, args.eps1));
  }
  __device__ __forceinline__ float update(int64_t i, float second) const {
    return g(i) / sqrtf(fmaxf(second, least));
  }
};

// The second moment of a row: one block.
__device__ __forceinline__ void adafactor_row(const AdafactorArgs& args) {
  if (args.scalars->skip != 0) return;
  const AdafactorStep step(args);
  const int64_t row = blockIdx.x;
  double sum = 0;
  for (int64_t c = threadIdx.x; c < args.columns; c += blockDim.x) {
    const float g = step.g(row * args.columns + c);
    sum += static_cast<double>(g * g);
  }
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) args.row[row] = step.moved(args.row[row], sum, args.columns);
}
// Σ row: one block.
__device__ __forceinline__ void adafactor_rows(const AdafactorArgs& args) {
  double sum = 0;
  for (int64_t row = threadIdx.x; row < args.rows; row += blockDim.x)
    sum += static_cast<double>(args.row[row]);
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) *args.of_rows = sum;
}
// A thread per column, over every gridDim.y-th row.
__device__ __forceinline__ void adafactor_column_parts(const AdafactorArgs& args) {
  const AdafactorStep step(args);
  const int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= args.columns) return;
  float sum = 0.0f;
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y) {
    const float g = step.g(row * args.columns + c);
    sum = fmaf(g, g, sum);
  }
  args.parts[static_cast<int64_t>(blockIdx.y) * args.columns + c] = sum;
}
__device__ __forceinline__ void adafactor_columns(const AdafactorArgs& args) {
  if (args.scalars->skip != 0) return;
  const AdafactorStep step(args);
  const int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= args.columns) return;
  double sum = 0;
  for (int64_t part = 0; part < args.part_count; ++part)
    sum += static_cast<double>(args.parts[part * args.columns + c]);
  args.column[c] = step.moved(args.column[c], sum, args.rows);
}
// partials[row] = Σ u² of a row; 0 if the step is skipped.
__device__ __forceinline__ void adafactor_updates(const AdafactorArgs& args) {
  const AdafactorStep step(args);
  const int64_t row = blockIdx.x;
  const float of_row = step.of_row(row);
  double sum = 0;
  for (int64_t c = threadIdx.x; c < args.columns && step.scalars.skip == 0; c += blockDim.x) {
    const float u = step.update(row * args.columns + c, of_row * args.column[c]);
    sum += static_cast<double>(u) * static_cast<double>(u);
  }
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) args.partials[row] = sum;
}
__device__ __forceinline__ void adafactor_apply(const AdafactorArgs& args) {
  if (args.scalars->skip != 0) return;
  const AdafactorStep step(args);
  const double n = static_cast<double>(args.rows) * static_cast<double>(args.columns);
  const double rate = static_cast<double>(step.scalars.lr) * static_cast<double>(args.lr_scale);
  const double alpha = fmax(args.eps2, sqrt(*args.weights / n)) *
                       fmin(rate, 1.0 / sqrt(static_cast<double>(step.scalars.update)));
  const auto length = static_cast<float>(alpha / fmax(1.0, sqrt(*args.updates / n) / args.clip_threshold)),
             keep = static_cast<float>(1.0 - rate * static_cast<double>(args.weight_decay));
  const int64_t row = blockIdx.x;
  const float of_row = step.of_row(row);
  for (int64_t c = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x; c < args.columns;
       c += static_cast<int64_t>(gridDim.y) * blockDim.x) {
    const int64_t i = row * args.columns + c;
    args.master[i] = fmaf(-length, step.update(i, of_row * args.column[c]), args.master[i] * keep);
  }
}

// --- Limits on rows of gradients: one block a row

__device__ __forceinline__ void row_squares_of(const RowSquaresArgs& args) {
  const float* const row = args.x + static_cast<int64_t>(blockIdx.x) * args.columns;
  double sum = 0;
  for (int64_t c = threadIdx.x; c < args.columns; c += blockDim.x)
    sum += static_cast<double>(row[c]) * static_cast<double>(row[c]);
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) args.squares[blockIdx.x] = sum;
}
__device__ __forceinline__ void clip_row(const ClipRowsArgs& args) {
  const int64_t row = blockIdx.x;
  const double most = args.limit * fmax(sqrt(args.weights[row]), args.least);
  const double norm = sqrt(args.squares[row]) * fabs(static_cast<double>(args.scalars->grad_scale));
  const float factor = norm > most ? static_cast<float>(most / norm) : 1.0f;
  for (int64_t c = threadIdx.x; c < args.columns; c += blockDim.x)
    args.out[row * args.columns + c] = args.x[row * args.columns + c] * factor;
}

}  // namespace updates

#define STRATA_KERNEL(NAME, ARGS, FUNCTION)                                                   \
  extern "C" __global__ void __launch_bounds__(256) NAME(const __grid_constant__ ARGS args) { \
    updates::FUNCTION(args);                                                                  \
  }
STRATA_KERNEL(lion_update, ElementUpdateArgs, lion)
STRATA_KERNEL(adopt_update, ElementUpdateArgs, adopt)
STRATA_KERNEL(adamw8bit_update, AdamW8BitArgs, adamw8bit)
STRATA_KERNEL(muon_momentum, MuonArgs, muon_momentum)
STRATA_KERNEL(muon_scale, MuonArgs, muon_scale)
STRATA_KERNEL(muon_polynomial, MuonArgs, muon_polynomial)
STRATA_KERNEL(muon_apply, MuonArgs, muon_apply)
STRATA_KERNEL(adafactor_row, AdafactorArgs, adafactor_row)
STRATA_KERNEL(adafactor_rows, AdafactorArgs, adafactor_rows)
STRATA_KERNEL(adafactor_column_parts, AdafactorArgs, adafactor_column_parts)
STRATA_KERNEL(adafactor_columns, AdafactorArgs, adafactor_columns)
STRATA_KERNEL(adafactor_updates, AdafactorArgs, adafactor_updates)
STRATA_KERNEL(adafactor_apply, AdafactorArgs, adafactor_apply)
STRATA_KERNEL(row_squares, RowSquaresArgs, row_squares_of)
STRATA_KERNEL(clip_rows, ClipRowsArgs, clip_row)

}  // namespace strata::gpu
