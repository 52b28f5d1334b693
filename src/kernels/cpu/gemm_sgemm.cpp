#include "kernels/cpu/gemm_sgemm.h"

#include <dnnl.h>

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"

namespace strata::cpu::detail {

bool prefers_sgemm(const GemmSpec& spec, const hardware::DeviceSpec& device) {
#ifdef STRATA_PLAIN_THREADS
  (void)spec;
  (void)device;
  return false;  // the library's threads are OpenMP's, which the thread sanitizer cannot follow
#else
  // For smaller results the library splits the depth over threads, so bits depend on the number of threads.
  constexpr int64_t kSmallResult = 512 * 512;
  constexpr int64_t kRow = 512;  // elements of 2 KB
  if (spec.rows_alone) return false;
  if (device.isa.avx512 && spec.n % kRow == 0 && spec.k % kRow == 0) return false;
  if (spec.dtype != DType::kF32 || spec.out_dtype != DType::kF32) return false;
  const int64_t rows = spec.role == GemmRole::kWeightGrad ? spec.n : spec.m;
  const int64_t columns = spec.role == GemmRole::kForward ? spec.n : spec.k;
  return rows * columns > kSmallResult;
#endif
}

void run_sgemm(const GemmSpec& spec, const GemmArgs& args) {
  const auto* a = static_cast<const float*>(args.a);
  const auto* b = static_cast<const float*>(args.b);
  auto* c = static_cast<float*>(args.c);
  dnnl_status_t status = dnnl_success;
  switch (spec.role) {
    case GemmRole::kForward: {
      if (args.bias != nullptr) {
        parallel_ranges(spec.m, 64, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) std::copy_n(args.bias, spec.n, c + row * spec.y_stride);
        });
      }
      status = dnnl_sgemm('N', 'T', spec.m, spec.n, spec.k, 1.0f, a, spec.x_stride, b, spec.k,
                          args.bias != nullptr ? 1.0f : 0.0f, c, spec.y_stride);
      break;
    }
    case GemmRole::kInputGrad:
      status = dnnl_sgemm('N', 'N', spec.m, spec.k, spec.n, 1.0f, a, spec.y_stride, b, spec.k, 0.0f, c,
                          spec.x_stride);
      break;
    case GemmRole::kWeightGrad:
      status = dnnl_sgemm('T', 'N', spec.n, spec.k, spec.m, 1.0f, a, spec.y_stride, b, spec.x_stride,
                          spec.accumulate ? 1.0f : 0.0f, c, spec.k);
      break;
  }
  STRATA_CHECK(status == dnnl_success, "[gemm] dnnl_sgemm of {} x {} x {} failed with status {}", spec.m,
               spec.n, spec.k, static_cast<int>(status));
}

}  // namespace strata::cpu::detail
