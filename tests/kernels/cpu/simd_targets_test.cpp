// All instruction sets of this processor yield the same results, up to rounding.
#include "fixtures/every_target.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/adafactor.h"
#include "kernels/cpu/adamw8bit.h"
#include "kernels/cpu/array_testing.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/rope.h"
#include "tensor/row_sums.h"

namespace strata::cpu {
namespace {

using testing::Array;

// Outputs of a chain of kernel families on rows of ragged length.
std::vector<Array> outputs(DType dtype) {
  constexpr int64_t kRows = 37, kDim = 70, n = kRows * kDim;
  const Array x = Array::random(dtype, n, 1, 2), weight = Array::random(DType::kF32, kDim, 2);
  Array y(dtype, n), rstd(DType::kF32, kRows), mean(DType::kF32, kRows), dw(DType::kF32, kDim), dx(dtype, n);
  Array z(dtype, n), gelu(dtype, n), gelu_erf(dtype, n), swiglu(dtype, n / 2), rotated(dtype, n);
  const NormShape shape{kRows, kDim, 1e-5f, dtype};
  rms_norm_forward(shape, y.data(), nullptr, rstd.f32(), x.data(), nullptr, weight.f32());
  rms_norm_backward_input(shape, dx.data(), y.data(), x.data(), rstd.f32(), weight.f32(), x.data());
  Array scratch = testing::scratch_of(rms_norm_weight_scratch_bytes(shape));
  rms_norm_backward_weight(shape, dw.f32(), y.data(), x.data(), rstd.f32(), false, scratch.data());
  layer_norm_forward(shape, z.data(), nullptr, mean.f32(), rstd.f32(), x.data(), nullptr, weight.f32(),
                     nullptr);
  activation_backward(ActivationKind::kGeluTanh, n, gelu.data(), y.data(), x.data(), dtype);
  activation_backward(ActivationKind::kGeluErf, n, gelu_erf.data(), y.data(), x.data(), dtype);
  gated_forward(ActivationKind::kSilu, kRows, kDim / 2, swiglu.data(), x.data(), dtype);
  Array table(DType::kF32, kRows * 14);
  fill_rope_table(table.f32(), kRows, std::vector<double>{1, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001});
  std::vector<int32_t> positions;
  for (int32_t row = 0; row < kRows; ++row) positions.push_back(row);
  rope({kRows, 5, 14, 14, kDim, dtype}, rotated.data(), x.data(), table.f32(), positions.data(), false);
  Array p = weight, m = weight, v = Array::random(DType::kF32, kDim, 3, 0, 1);
  const UpdateScalars scalars{.lr = 0.01f};
  adamw_update(kDim, {p.f32(), m.f32(), v.f32(), dw.f32()}, &scalars, {.weight_decay = 0.1f});
  Array lion = weight, lion_m = weight, bytes = x, factored = x, row(DType::kF32, kRows), column = weight;
  lion_update(kDim, lion.f32(), lion_m.f32(), dw.f32(), &scalars, {0.9, 0.99, 0.1f, 1});
  if (dtype == DType::kF32) {
    std::vector<uint8_t> codes(static_cast<size_t>(2 * n));
    std::vector<float> scales(static_cast<size_t>(2 * quantization_blocks(n)));
    const Moments8Bit moments{codes.data(), scales.data(), codes.data() + n,
                              scales.data() + quantization_blocks(n)};
    adamw8bit_update(n, bytes.f32(), moments, x.f32(), &scalars, {.weight_decay = 0.1f});
    for (int64_t i = 0; i < kRows; ++i) row.set(i, 1);
    for (int64_t j = 0; j < kDim; ++j) column.set(j, 1);
    Array factored_scratch = testing::scratch_of(adafactor_scratch_bytes(kRows, kDim));
    adafactor_update(kRows, kDim, factored.f32(), row.f32(), column.f32(), x.f32(), &scalars, {},
                     factored_scratch.data());
  }
  Array sums(dtype, n);
  if (dtype == DType::kF32) {
    const float* const rows[] = {x.f32(), y.f32(), z.f32()};
    sum_rows(sums.f32(), rows, n);
  } else if (dtype == DType::kF16) {
    const F16* const rows[] = {static_cast<const F16*>(x.data()), static_cast<const F16*>(y.data()),
                               static_cast<const F16*>(z.data())};
    sum_rows(static_cast<F16*>(sums.data()), rows, n);
  } else {
    const BF16* const rows[] = {static_cast<const BF16*>(x.data()), static_cast<const BF16*>(y.data()),
                                static_cast<const BF16*>(z.data())};
    sum_rows(static_cast<BF16*>(sums.data()), rows, n);
  }
  return {sums, y, dx, dw, z, gelu, gelu_erf, swiglu, rotated, p, lion_m, bytes, factored};
}

TEST(SimdTargets, AgreeUpToRounding) {
  for (const DType dtype : testing::kActivationTypes) {
    const std::vector<Array> best = outputs(dtype);
    strata::fixtures::on_every_target([&](int64_t) {
      const std::vector<Array> got = outputs(dtype);
      // Two roundings may go in opposite directions.
      const double tolerance = dtype == DType::kBF16 ? 0.01 : dtype == DType::kF16 ? 0.00125 : 1e-5;
      for (size_t i = 0; i < best.size(); ++i) {
        SCOPED_TRACE(i);
        testing::expect_near(got[i], best[i].values(), tolerance, 10);
      }
    });
  }
}

}  // namespace
}  // namespace strata::cpu
