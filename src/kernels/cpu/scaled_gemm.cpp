#include "kernels/cpu/scaled_gemm.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/bf16_block.h"
#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/gemm_panels-inl.h"
#include "kernels/cpu/hopper_sums.h"

namespace strata::cpu {
namespace {

using detail::BlockOutput;
using detail::SumScales;

void check(const ScaledGemmSpec& s) {
  STRATA_CHECK(s.rows >= 0 && s.cols >= 0 && s.depth >= 0,
               "[scaled_gemm] sizes rows={} cols={} depth={}: expected at least 0", s.rows, s.cols, s.depth);
  STRATA_CHECK(s.out_dtype == DType::kF32 || s.out_dtype == DType::kBF16,
               "[scaled_gemm] result is {}: expected f32 or bf16", name_of(s.out_dtype));
  STRATA_CHECK(!s.accumulate || s.out_dtype == DType::kF32, "[scaled_gemm] only f32 results accumulate");
}

void check_hopper(const detail::CodedOperand& operand) {
  const quantize::Format format = operand.operand.rule.format();
  STRATA_CHECK(
      operand.fold == detail::Fold::kNothing &&
          (format == quantize::Format::kE4M3 || format == quantize::Format::kE5M2),
      "[scaled_gemm] the model of Hopper's sums has an operand of {}: expected e4m3 or e5m2 with fp32 "
      "scales that are constant along the depth or along 128 of it",
      quantize::spec_of(format).name);
}

double bytes_of(const detail::CodedOperand& operand) {
  return static_cast<double>(operand.layout.code_bytes() + operand.layout.scale_bytes());
}

struct FloatPanels {
  using Value = float;
  static int64_t values(int64_t depth, int64_t width) { return depth * width; }
  static void multiply(const BlockOutput& out, const SumScales& scales, const float* a, int64_t a_stride,
                       const float* b, int64_t b_stride, int64_t rows, int64_t cols, int64_t depth,
                       const float* next) {
    detail::multiply_block_scaled(out, nullptr, scales, a, a_stride, b, b_stride, rows, cols, depth, next);
  }
};
struct PairPanels {
  using Value = BF16;
  static int64_t values(int64_t depth, int64_t width) { return detail::panel_values(depth, width); }
  static void multiply(const BlockOutput& out, const SumScales& scales, const BF16* a, int64_t a_stride,
                       const BF16* b, int64_t b_stride, int64_t rows, int64_t cols, int64_t depth,
                       const BF16* next) {
    detail::multiply_pairs_scaled(out, nullptr, scales, a, a_stride, b, b_stride, rows, cols, depth, next);
  }
};
struct HopperPanels {
  using Value = float;
  static int64_t values(int64_t depth, int64_t width) { return depth * width; }
  static constexpr auto multiply = detail::multiply_hopper;
};

// As PanelProduct wants them.
template <typename Panels>
class CodeOperands {
 public:
  using Value = typename Panels::Value;
  CodeOperands(const detail::PanelShape& shape, const detail::DecodedOperand& a,
               const detail::DecodedOperand& b)
      : shape_(shape), a_(a), b_(b) {}

  static int64_t values(int64_t depth, int64_t width) { return Panels::values(depth, width); }
  void pack_a(Value* to, int64_t row, int64_t rows, int64_t deep, int64_t depth) const {
    a_.pack(to, shape_.mr, nullptr, row, rows, deep, depth);
  }
  void pack_b(Value* to, int64_t col, int64_t cols, int64_t deep, int64_t depth) const {
    b_.pack(to, shape_.nr, nullptr, col, cols, deep, depth);
  }
  static const Value* ready_b(int64_t, int64_t) { return nullptr; }
  static int64_t ready_stride() { return 0; }
  void multiply(const BlockOutput& out, detail::PanelPlace place, const Value* a, int64_t a_stride,
                const Value* b, int64_t b_stride, int64_t rows, int64_t cols, int64_t depth,
                const Value* next) const {
    const SumScales scales{a_.edges(place.deep) + place.row, b_.edges(place.deep) + place.col};
    Panels::multiply(out, scales, a, a_stride, b, b_stride, rows, cols, depth, next);
  }

 private:
  detail::PanelShape shape_;
  const detail::DecodedOperand& a_;
  const detail::DecodedOperand& b_;
};

template <typename Panels>
void run(const ScaledGemmPlan& plan, const detail::DecodedOperand& a, const detail::DecodedOperand& b,
         const float* bias, void* c, void* scratch) {
  const CodeOperands<Panels> operands(plan.panels.shape, a, b);
  detail::PanelProduct(plan.panels, operands, bias, c, scratch).run();
}

}  // namespace

ScaledGemmPlan plan_scaled_gemm(const ScaledGemmSpec& spec, const hardware::DeviceSpec& device) {
  check(spec);
  ScaledGemmPlan plan{.spec = spec,
                      .cost = {},
                      .a = {spec.a, spec.rows, spec.depth},
                      .b = {spec.b, spec.cols, spec.depth},
                      .panels = {}};
  const bool hopper = spec.sums != PartialSums::kF32;
  const bool edges_change = plan.a.edges_change || plan.b.edges_change;
  if (hopper) {
    check_hopper(plan.a);
    check_hopper(plan.b);
  }
  detail::PanelGemm& gemm = plan.panels;
  gemm.rows = spec.rows;
  gemm.cols = spec.cols;
  gemm.depth = spec.depth;
  gemm.pairs = !hopper && detail::multiplies_pairs_fast(device.isa);
  gemm.shape = hopper       ? detail::kHopperPanels
               : gemm.pairs ? detail::kPairPanels
                            : detail::panel_shape_of(device.isa);
  gemm.codes = true;
  gemm.out_dtype = spec.out_dtype;
  gemm.out_stride = spec.cols;
  gemm.accumulate = spec.accumulate;
  if (edges_change || spec.sums == PartialSums::kHopperPromoted) {
    gemm.depth_step = detail::kEdgeDepth;
  } else if (hopper) {
    gemm.depth_step = std::max<int64_t>(1, spec.depth);
  }
  detail::plan_panels(gemm, std::max(1, device.threads));
  plan.a_scales_at = align_up(gemm.scratch_bytes, kBufferAlignment);
  plan.b_scales_at = plan.a_scales_at + align_up(plan.a.scratch_bytes, kBufferAlignment);
  plan.scratch_bytes = plan.b_scales_at + plan.b.scratch_bytes;
  const auto results = static_cast<double>(spec.rows) * static_cast<double>(spec.cols);
  plan.cost.flops = 2.0 * results * static_cast<double>(spec.depth);
  plan.cost.bytes = bytes_of(plan.a) + bytes_of(plan.b) +
                    results * static_cast<double>(size_of(spec.out_dtype)) * (spec.accumulate ? 2 : 1);
  return plan;
}

void run_scaled_gemm(const ScaledGemmPlan& plan, const ScaledMatrix& a, const ScaledMatrix& b,
                     const float* bias, void* c, void* scratch) {
  const ScaledGemmSpec& spec = plan.spec;
  if (spec.rows == 0 || spec.cols == 0 || (spec.depth == 0 && spec.accumulate)) return;
  STRATA_CHECK((bias != nullptr) == spec.bias, "[scaled_gemm] a bias differs from the plan");
  auto* const memory = static_cast<std::byte*>(scratch);
  const detail::DecodedOperand of_a(plan.a, a, memory + plan.a_scales_at);
  const detail::DecodedOperand of_b(plan.b, b, memory + plan.b_scales_at);
  of_a.prepare();
  of_b.prepare();
  if (spec.sums != PartialSums::kF32) return run<HopperPanels>(plan, of_a, of_b, bias, c, scratch);
  detail::check_panels(plan.panels);
  if (plan.panels.pairs) return run<PairPanels>(plan, of_a, of_b, bias, c, scratch);
  run<FloatPanels>(plan, of_a, of_b, bias, c, scratch);
}

}  // namespace strata::cpu
