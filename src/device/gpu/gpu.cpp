#include "device/gpu/gpu.h"

namespace strata::device {

void not_yet(std::string_view op, const std::string& form) {
  throw ConfigError("[device.kind] cuda has no kernel for {}{}{} yet; expected cpu", op,
                    form.empty() ? "" : " ", form);
}

GpuGemm::GpuGemm(const gpu::GemmShape& of, const hardware::DeviceSpec& device)
    : plan(gpu::plan_gemm(of, {.multiprocessors = std::max(1, device.multiprocessors)})), shape(of) {}

void GpuGemm::run(const Launch& launch, const void* a, const void* b, void* c, bool adds, std::byte* scratch,
                  const float* bias) const {
  const bool parts = plan.splits > 1;
  start(launch, plan.product,
        gpu::GemmArgs{.a = a,
                      .b = b,
                      .c = parts ? scratch : c,
                      .bias = parts ? nullptr : bias,
                      .a_stride = shape.a_stride,
                      .b_stride = shape.b_stride,
                      .c_stride = parts ? shape.n : shape.c_stride,
                      .m = static_cast<int32_t>(shape.m),
                      .n = static_cast<int32_t>(shape.n),
                      .k = static_cast<int32_t>(shape.k),
                      .accumulate = !parts && adds ? 1 : 0,
                      .splits = plan.splits,
                      .split_depth = plan.split_depth});
  if (!parts) return;
  start(launch, plan.sum,
        gpu::GemmSumArgs{.parts = reinterpret_cast<const float*>(scratch),
                         .c = c,
                         .bias = bias,
                         .c_stride = shape.c_stride,
                         .m = static_cast<int32_t>(shape.m),
                         .n = static_cast<int32_t>(shape.n),
                         .splits = plan.splits,
                         .accumulate = adds ? 1 : 0});
}

void GpuColumnSums::run(const Launch& launch, const void* in, float* out, bool adds,
                        std::byte* scratch) const {
  auto* const parts = reinterpret_cast<float*>(scratch);
  start(launch, plan.sums,
        gpu::ColumnSumsArgs{.in = in, .parts = parts, .rows = rows, .columns = columns, .stride = columns});
  start(launch, plan.sum,
        gpu::ColumnPartsArgs{.parts = parts,
                             .out = out,
                             .count = plan.parts,
                             .columns = columns,
                             .stride = columns,
                             .accumulate = adds ? 1 : 0});
}

}  // namespace strata::device
