#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/gemm_few.h"
#include "kernels/cpu/gemm_onednn.h"
#include "kernels/cpu/gemm_panels.h"
#include "kernels/cpu/gemm_sgemm.h"

namespace strata::cpu {
namespace {

GemmEngine resolve(GemmEngine engine, DType dtype) {
  if (engine != GemmEngine::kAuto) return engine;
  return dtype == DType::kBF16 && detail::onednn_has_native_bf16() ? GemmEngine::kOneDnn
                                                                   : GemmEngine::kPanels;
}

void check(const GemmSpec& spec) {
  STRATA_CHECK(spec.m >= 0 && spec.n >= 0 && spec.k >= 0, "[gemm] sizes m={} n={} k={} must not be negative",
               spec.m, spec.n, spec.k);
  STRATA_CHECK(spec.dtype == DType::kF32 || spec.dtype == DType::kBF16,
               "[gemm] activations are {}, expected f32 or bf16", name_of(spec.dtype));
  STRATA_CHECK(
      spec.out_dtype == DType::kF32 || (spec.out_dtype == spec.dtype && spec.role != GemmRole::kWeightGrad),
      "[gemm] the result is {}, expected f32 or (not for weight gradients) the activations' {}",
      name_of(spec.out_dtype), name_of(spec.dtype));
  STRATA_CHECK(!spec.bias || spec.role == GemmRole::kForward, "[gemm] only the forward product takes a bias");
  STRATA_CHECK(!spec.accumulate || spec.role == GemmRole::kWeightGrad,
               "[gemm] only weight gradients accumulate");
  STRATA_CHECK(spec.x_stride >= spec.k && spec.y_stride >= spec.n,
               "[gemm] strides x={} y={} are below k={} n={}", spec.x_stride, spec.y_stride, spec.k, spec.n);
}

detail::PanelGemm panels_of(const GemmSpec& spec) {
  detail::PanelGemm gemm;
  gemm.out_dtype = spec.out_dtype;
  const bool round = spec.dtype == DType::kBF16;
  switch (spec.role) {
    case GemmRole::kForward:
      gemm.rows = spec.m;
      gemm.cols = spec.n;
      gemm.depth = spec.k;
      gemm.a = {.dtype = spec.dtype, .stride = spec.x_stride};
      gemm.b = {.dtype = DType::kF32, .stride = spec.k, .depth_major = false, .round_to_bf16 = round};
      gemm.out_stride = spec.y_stride;
      break;
    case GemmRole::kInputGrad:
      gemm.rows = spec.m;
      gemm.cols = spec.k;
      gemm.depth = spec.n;
      gemm.a = {.dtype = spec.dtype, .stride = spec.y_stride};
      gemm.b = {.dtype = DType::kF32, .stride = spec.k, .depth_major = true, .round_to_bf16 = round};
      gemm.out_stride = spec.x_stride;
      break;
    case GemmRole::kWeightGrad:
      gemm.rows = spec.n;
      gemm.cols = spec.k;
      gemm.depth = spec.m;
      gemm.a = {.dtype = spec.dtype, .stride = spec.y_stride, .depth_major = true};
      gemm.b = {.dtype = spec.dtype, .stride = spec.x_stride, .depth_major = true};
      gemm.out_stride = spec.k;
      gemm.out_dtype = DType::kF32;
      gemm.accumulate = spec.accumulate;
      break;
  }
  detail::plan_panels(gemm);
  return gemm;
}

}  // namespace

struct GemmPlan::Impl {
  void (*run)(const GemmPlan&, const GemmArgs&) = nullptr;  // of the engine that plan_gemm chose
  detail::PanelGemm panels;
  std::optional<detail::OneDnnGemm> onednn;
};

namespace {

void run_onednn(const GemmPlan& plan, const GemmArgs& args) {
  plan.impl->onednn->run(args);
}

void run_sgemm(const GemmPlan& plan, const GemmArgs& args) {
  detail::run_sgemm(plan.spec, args);
}

void run_few_rows(const GemmPlan& plan, const GemmArgs& args) {
  const GemmSpec& spec = plan.spec;
  detail::multiply_few_rows({spec.m, spec.n, spec.k, spec.x_stride, spec.y_stride},
                            static_cast<const float*>(args.a), static_cast<const float*>(args.b), args.bias,
                            static_cast<float*>(args.c));
}

void run_weight_rows(const GemmPlan& plan, const GemmArgs& args) {
  const GemmSpec& s = plan.spec;
  detail::multiply_few_rows({.rows = s.m, .n = s.n, .k = s.k, .x_stride = s.x_stride, .y_stride = s.y_stride},
                            static_cast<const BF16*>(args.a), static_cast<const BF16*>(args.b), args.bias,
                            args.c, s.out_dtype, static_cast<float*>(args.scratch));
}

class RowPacker final : public WeightEncoding::Packer {
 public:
  explicit RowPacker(int64_t elements) : elements_(elements) {}
  void pack(void* dst, const float* master) override {
    parallel_ranges(elements_, 1 << 16, [&](int64_t begin, int64_t end) {
      convert(static_cast<BF16*>(dst) + begin, DType::kBF16, master + begin, DType::kF32, end - begin);
    });
  }

 private:
  int64_t elements_;
};

void run_panels(const GemmPlan& plan, const GemmArgs& args) {
  detail::run_panels(plan.impl->panels, args.a, args.b, args.bias, args.c, args.scratch);
}

}  // namespace

GemmPlan::GemmPlan() = default;
GemmPlan::~GemmPlan() = default;
GemmPlan::GemmPlan(GemmPlan&&) noexcept = default;
GemmPlan& GemmPlan::operator=(GemmPlan&&) noexcept = default;

GemmPlan plan_gemm(const GemmSpec& wanted, GemmEngine engine) {
  GemmPlan plan;
  plan.spec = wanted;
  if (plan.spec.x_stride == 0) plan.spec.x_stride = wanted.k;
  if (plan.spec.y_stride == 0) plan.spec.y_stride = wanted.n;
  check(plan.spec);
  plan.cost = gemm_cost(plan.spec);
  plan.impl = std::make_unique<GemmPlan::Impl>();
  const bool empty = wanted.m == 0 || wanted.n == 0 || wanted.k == 0;
  if (wanted.weight_rows) {
    STRATA_CHECK(wanted.role == GemmRole::kForward && wanted.dtype == DType::kBF16,
                 "[gemm] only the forward product of bf16 reads a weight in rows");
    plan.scratch_bytes = wanted.m * wanted.k * size_of(DType::kF32);
    plan.impl->run = run_weight_rows;
    plan.engine = "few rows";
  } else if (!empty && resolve(engine, wanted.dtype) == GemmEngine::kOneDnn) {
    plan.impl->onednn.emplace(plan.spec);
    plan.scratch_bytes = plan.impl->onednn->scratch_bytes();
    plan.impl->run = run_onednn;
    plan.engine = plan.impl->onednn->name();
  } else if (engine == GemmEngine::kAuto && wanted.role == GemmRole::kForward &&
             wanted.dtype == DType::kF32 && wanted.m <= detail::kFewRows) {
    plan.impl->run = run_few_rows;
    plan.engine = "few rows";
  } else if (!empty && engine == GemmEngine::kAuto && detail::prefers_sgemm(plan.spec)) {
    plan.impl->run = run_sgemm;
    plan.engine = "sgemm";
  } else {
    plan.impl->run = run_panels;
    plan.impl->panels = panels_of(plan.spec);
    plan.scratch_bytes = empty ? 0 : plan.impl->panels.scratch_bytes;
    plan.engine = "panels";
  }
  return plan;
}

void run_gemm(const GemmPlan& plan, const GemmArgs& args) {
  plan.impl->run(plan, args);
}

WeightEncoding plan_weight_encoding(GemmRole role, int64_t n, int64_t k, DType dtype, GemmEngine engine) {
  STRATA_CHECK(role != GemmRole::kWeightGrad, "[gemm] a weight gradient reads no weight");
  WeightEncoding encoding{
      .id = "plain", .role = role, .n = n, .k = k, .dtype = dtype, .engine = resolve(engine, dtype)};
  if (encoding.engine == GemmEngine::kOneDnn && n > 0 && k > 0) detail::plan_onednn_encoding(encoding);
  return encoding;
}

bool prefers_weight_rows(int64_t m, DType dtype) {
  return dtype == DType::kBF16 && m <= detail::kFewRows && !detail::onednn_has_native_bf16();
}

WeightEncoding plan_weight_rows(int64_t n, int64_t k) {
  WeightEncoding encoding{.id = "bf16 rows",
                          .plain = false,
                          .bytes = n * k * size_of(DType::kBF16),
                          .n = n,
                          .k = k,
                          .dtype = DType::kBF16};
  encoding.packer = std::make_shared<RowPacker>(n * k);
  return encoding;
}

void pack_weight(const WeightEncoding& encoding, void* dst, const float* master) {
  if (encoding.packer) encoding.packer->pack(dst, master);
}

}  // namespace strata::cpu
