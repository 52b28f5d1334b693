// Statistics, samples and digests of tensors. Kernels that are off read one word and return.
#include <cstddef>

#include "kernels/gpu/rows.cuh"
#include "kernels/gpu/squares.cuh"
#include "tensor/statistics_table.h"

namespace strata::gpu {

__device__ __forceinline__ bool is_on(const int64_t* mask, int32_t group) {
  return (*mask >> group & 1) != 0;
}

// The numbers of a table but `elements`, of some elements.
struct Numbers {
  double sum = 0, squares = 0, row_squares = 0;
  uint32_t greatest = 0;  // bits of a magnitude
  uint32_t nonfinite = 0, zeros = 0, saturated = 0, flushed = 0;
};
// A table in memory: sums, except two maxima.
constexpr int kNumbers = 9, kGreatest = 2, kRowSquares = 3, kElements = 8;
static_assert(sizeof(StatisticsTable) == 8 * kNumbers && offsetof(StatisticsTable, squares) == 8 &&
              offsetof(StatisticsTable, greatest) == 8 * kGreatest &&
              offsetof(StatisticsTable, row_squares) == 8 * kRowSquares &&
              offsetof(StatisticsTable, nonfinite) == 32 && offsetof(StatisticsTable, zeros) == 40 &&
              offsetof(StatisticsTable, saturated) == 48 && offsetof(StatisticsTable, flushed) == 56 &&
              offsetof(StatisticsTable, elements) == 8 * kElements);
__device__ __forceinline__ bool is_maximum(int number) {
  return number == kGreatest || number == kRowSquares;
}
__device__ __forceinline__ double joined(bool maximum, double a, double b) {
  return maximum ? (a < b ? b : a) : a + b;
}

constexpr uint32_t kInfinityBits = 0x7f800000, kLeastNormalBits = 0x00800000;

// Compares bits, which order magnitudes as their values do: an instruction may flush subnormal numbers.
__device__ __forceinline__ void take(float x, uint32_t largest_bits, Numbers& to, double& squares) {
  const uint32_t bits = __float_as_uint(x) & 0x7fffffff;
  const bool finite = bits < kInfinityBits;
  const double value = finite ? static_cast<double>(x) : 0.0;
  to.sum += value;
  squares = fma(value, value, squares);
  if (!finite) {
    ++to.nonfinite;
    return;
  }
  to.greatest = max(to.greatest, bits);
  if (bits == 0) ++to.zeros;
  if (bits >= largest_bits) ++to.saturated;
  if (bits != 0 && bits < kLeastNormalBits) ++to.flushed;
}

// Every thread of a warp gets the joined value of all.
__device__ __forceinline__ double joined_warp(bool maximum, double value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = joined(maximum, value, shuffle_xor(value, mask));
  return value;
}

// to[kNumbers] = the numbers of all threads of a block of whole warps; `elements` is left 0.
__device__ __forceinline__ void write_block(const Numbers& own, double* to) {
  __shared__ double shared[kNumbers][kMostWarps];
  const double numbers[kNumbers] = {own.sum,
                                    own.squares,
                                    static_cast<double>(__uint_as_float(own.greatest)),
                                    own.row_squares,
                                    static_cast<double>(own.nonfinite),
                                    static_cast<double>(own.zeros),
                                    static_cast<double>(own.saturated),
                                    static_cast<double>(own.flushed),
                                    0.0};
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp,
            warps = static_cast<int>(blockDim.x) / kWarp;
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) {
    const double all = joined_warp(is_maximum(i), numbers[i]);
    if (lane == 0) shared[i][warp] = all;
  }
  __syncthreads();
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kNumbers) return;
  double all = shared[i][0];
  for (int w = 1; w < warps; ++w) all = joined(is_maximum(i), all, shared[i][w]);
  to[i] = all;
}

// Elements [0, n) from `line`, those of this thread: every threads-th vector, then every threads-th element of
// the rest. Vectors begin at the first aligned element.
template <typename T>
__device__ __forceinline__ void take_line(const T* line, int64_t n, int64_t thread, int64_t threads,
                                          uint32_t largest_bits, Numbers& to, double& squares) {
  constexpr int kCount = kVector<T>;
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(line) / sizeof(T) % kCount);
  const int64_t head = min(n, (kCount - past) % kCount), vectors = (n - head) / kCount;
#pragma unroll 2
  for (int64_t i = thread; i < vectors; i += threads) {
    float vec[kCount];
    load(line + head + i * kCount, vec);
#pragma unroll
    for (int k = 0; k < kCount; ++k) take(vec[k], largest_bits, to, squares);
  }
  const int64_t rest = n - vectors * kCount;
  for (int64_t i = thread; i < rest; i += threads)
    take(to_float(line[i < head ? i : i + vectors * kCount]), largest_bits, to, squares);
}

// parts[blockIdx.x] = the numbers of a block's elements. All elements are one line for all threads; of some
// columns or by rows, each warp takes lines of (end - begin) or `row` elements.
template <typename T>
__device__ __forceinline__ void measure(const StatisticsArgs& args) {
  if (!is_on(args.mask, args.group) || (args.first != 0 && args.accumulate != 0)) return;
  const T* const x = static_cast<const T*>(args.x);
  const uint32_t largest_bits = args.largest > 0.0f ? __float_as_uint(args.largest) : kInfinityBits;
  const int64_t width = args.end - args.begin;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
                threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  Numbers own;
  if (args.row == 0 && width == args.columns) {
    take_line(x, args.rows * args.columns, thread, threads, largest_bits, own, own.squares);
  } else if (width > 0) {
    const int64_t length = args.row > 0 ? args.row : width, per_row = width / length;
    for (int64_t line = thread / kWarp; line < args.rows * per_row; line += threads / kWarp) {
      const T* const from = x + line / per_row * args.columns + args.begin + line % per_row * length;
      double squares = 0;
      take_line(from, length, thread % kWarp, kWarp, largest_bits, own, squares);
      own.squares += squares;
      if (args.row > 0) own.row_squares = joined(true, own.row_squares, joined_warp(false, squares));
    }
  }
  write_block(own, args.parts + static_cast<int64_t>(blockIdx.x) * kNumbers);
}

__device__ __forceinline__ void write_number(double* table, int number, double value, bool accumulates) {
  table[number] = accumulates ? joined(is_maximum(number), table[number], value) : value;
}

// A warp for each number. One block.
__device__ __forceinline__ void add_parts(const StatisticsArgs& args) {
  if (!is_on(args.mask, args.group) || (args.first != 0 && args.accumulate != 0)) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, number = static_cast<int>(threadIdx.x) / kWarp;
  // As many as blocks that statistics() launches.
  const int64_t wanted = (args.rows * args.columns + kStatisticsBlock - 1) / kStatisticsBlock,
                parts = min(max(wanted, int64_t{1}), int64_t{kMostStatisticsParts});
  double value = 0;
#pragma unroll 4
  for (int64_t i = lane; i < parts; i += kWarp)
    value = joined(is_maximum(number), value, args.parts[i * kNumbers + number]);
  value = joined_warp(is_maximum(number), value);
  if (number == kElements) value = static_cast<double>(args.rows * (args.end - args.begin));
  if (lane == 0) write_number(args.table, number, value, args.accumulate != 0);
}

__device__ __forceinline__ const float& sampled(const SampleArgs& args, int64_t i) {
  return args.x[i * args.n / args.m];
}

// One block.
__device__ __forceinline__ void measure_change(const SampleArgs& args) {
  __shared__ double table[kNumbers];
  if (!is_on(args.mask, args.group)) return;
  Numbers own;
  double greatest = 0;
  for (int64_t i = threadIdx.x; i < args.m; i += blockDim.x) {
    const double change = static_cast<double>(sampled(args, i)) - static_cast<double>(args.sample[i]);
    if (!(fabs(change) < static_cast<double>(INFINITY))) {
      ++own.nonfinite;
      continue;
    }
    own.sum += change;
    own.squares = fma(change, change, own.squares);
    greatest = joined(true, greatest, fabs(change));
    if (change == 0) ++own.zeros;
  }
  // A difference of two fp32 numbers may need fp64: row_squares carries the maximum through the block.
  own.row_squares = greatest;
  write_block(own, table);
  __syncthreads();
  const int number = static_cast<int>(threadIdx.x);
  if (number >= kNumbers) return;
  double value = table[number];
  if (number == kGreatest) value = table[kRowSquares];
  if (number == kRowSquares) value = 0;
  if (number == kElements) value = static_cast<double>(args.m);
  write_number(args.table, number, value, args.accumulate != 0);
}

// An odd number whose bits look random, as ops::factor_of_digest.
__device__ __forceinline__ uint64_t factor_of_digest(uint64_t i) {
  uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) | 1;
}

// Modulo 2^64 any order of additions has the same result. One block.
__device__ __forceinline__ void join(const JoinDigestsArgs& args) {
  __shared__ uint64_t shared[kMostWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp,
            warps = static_cast<int>(blockDim.x) / kWarp;
  uint64_t digest = 0;
  auto first = static_cast<uint64_t>(args.first);
  for (int list = 0; list < args.lists; ++list) {
    const int64_t* const digests = args.digests[list];
    for (int i = static_cast<int>(threadIdx.x); i < args.counts[list]; i += static_cast<int>(blockDim.x))
      digest += static_cast<uint64_t>(digests[i]) * factor_of_digest(first + static_cast<uint64_t>(i));
    first += static_cast<uint64_t>(args.counts[list]);
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) digest += shuffle_xor(digest, mask);
  if (lane == 0) shared[warp] = digest;
  __syncthreads();
  if (threadIdx.x != 0) return;
  digest = args.accumulate != 0 ? static_cast<uint64_t>(*args.digest) : 0;
  for (int w = 0; w < warps; ++w) digest += shared[w];
  *args.digest = static_cast<int64_t>(digest);
}

extern "C" __global__ void __launch_bounds__(256)
    statistics_parts_f32(const __grid_constant__ StatisticsArgs args) {
  measure<float>(args);
}
extern "C" __global__ void __launch_bounds__(256)
    statistics_parts_bf16(const __grid_constant__ StatisticsArgs args) {
  measure<BF16>(args);
}
extern "C" __global__ void __launch_bounds__(kNumbers* kWarp)
    statistics_sum(const __grid_constant__ StatisticsArgs args) {
  add_parts(args);
}
extern "C" __global__ void __launch_bounds__(256) take_sample(const __grid_constant__ SampleArgs args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < args.m && is_on(args.mask, args.group)) args.sample[i] = sampled(args, i);
}
extern "C" __global__ void __launch_bounds__(1024) sample_change(const __grid_constant__ SampleArgs args) {
  measure_change(args);
}
extern "C" __global__ void __launch_bounds__(256)
    squares_and_digests(const __grid_constant__ DigestArgs args) {
  block_squares<true>(args.partials, args.digests, args.x, args.n);
}
extern "C" __global__ void __launch_bounds__(1024)
    join_digests(const __grid_constant__ JoinDigestsArgs args) {
  join(args);
}

}  // namespace strata::gpu
