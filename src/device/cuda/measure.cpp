#include "device/cuda/measure.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "kernels/gpu/args.h"

namespace strata::device {
namespace {

int64_t free_bytes(const cuda::Card& card) {
  card.use();
  size_t free = 0, total = 0;
  card.driver->check(card.driver->memory_info(&free, &total), "cuMemGetInfo");
  return static_cast<int64_t>(free);
}

constexpr int64_t kShare = 64;  // of the free memory

// The best of some seconds, and at least two runs: the first one loads code.
double best_seconds(const std::function<void()>& run, double seconds) {
  run();
  double best = 0;
  for (const double end = monotonic_seconds() + seconds; best == 0 || monotonic_seconds() < end;) {
    const double begin = monotonic_seconds();
    run();
    const double took = monotonic_seconds() - begin;
    best = best == 0 ? took : std::min(best, took);
  }
  return best;
}

}  // namespace

PeakProduct square_product(const cuda::Card& card, CudaQueue& queue, int multiprocessors, DType dtype) {
  constexpr int64_t kLargest = 8192;
  int64_t n = kLargest;
  while (n > 128 && 3 * n * n * size_of(dtype) > free_bytes(card) / kShare) n /= 2;
  const gpu::GemmShape shape{.layout = gpu::GemmLayout::kNT,
                             .dtype = dtype,
                             .out_dtype = dtype,
                             .m = n,
                             .n = n,
                             .k = n,
                             .a_stride = n,
                             .b_stride = n,
                             .c_stride = n};
  const gpu::GemmPlan plan = gpu::plan_gemm(shape, {.multiprocessors = std::max(1, multiprocessors)});
  const int64_t bytes = n * n * size_of(dtype), parts = plan.splits > 1 ? plan.parts_bytes : 0;
  const auto memory = std::make_shared<cuda::OwnMemory>(card, 3 * bytes + parts, "a measurement");
  queue.clear(memory->address(), 3 * bytes);
  const auto run = [&card, &queue, memory, plan, n, bytes] {
    card.use();
    std::byte* const c = memory->address() + (plan.splits > 1 ? 3 : 2) * bytes;
    const gpu::GemmArgs args{.a = memory->address(),
                             .b = memory->address() + bytes,
                             .c = c,
                             .bias = nullptr,
                             .a_stride = n,
                             .b_stride = n,
                             .c_stride = n,
                             .m = static_cast<int32_t>(n),
                             .n = static_cast<int32_t>(n),
                             .k = static_cast<int32_t>(n),
                             .accumulate = 0,
                             .splits = plan.splits,
                             .split_depth = plan.split_depth};
    queue.start(plan.product, &args, sizeof args, "a measurement of the matmul peak");
    queue.wait();
  };
  const auto side = static_cast<double>(n);
  return {2 * side * side * side, run};
}

hardware::DeviceSpec measure_gpu(const cuda::Card& card, CudaQueue& queue, hardware::DeviceSpec spec,
                                 double seconds) {
  card.use();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const PeakProduct product = square_product(card, queue, spec.multiprocessors, dtype);
    spec.gemm_flops[hardware::precision_of(name_of(dtype))] =
        product.flops / best_seconds(product.run, seconds / 4);
  }
  const int64_t bytes = std::clamp<int64_t>(free_bytes(card) / kShare, 256, int64_t{1} << 30) / 256 * 256;
  const cuda::OwnMemory memory(card, 2 * bytes, "a measurement");
  queue.clear(memory.address(), 2 * bytes);
  const double copy = best_seconds(
      [&] {
        queue.copy(memory.address(), memory.address() + bytes, bytes);
        queue.wait();
      },
      seconds / 4);
  spec.memory_bytes_per_s = 2 * static_cast<double>(bytes) / copy;
  constexpr int kStarts = 100;
  const double started = best_seconds(
      [&] {
        for (int i = 0; i < kStarts; ++i) queue.clear(memory.address(), 4);
        queue.wait();
      },
      seconds / 4);
  spec.launch_seconds = started / kStarts;
  spec.source = "measured";
  return spec;
}

}  // namespace strata::device
