#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/bf16_block.h"
#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/gemm_onednn.h"
#include "kernels/cpu/gemm_panels.h"
#include "kernels/cpu/gemm_sgemm.h"
#include "kernels/cpu/gemm_skinny.h"
#include "kernels/cpu/weight_encoding.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

bool multiplies_bf16(const hardware::DeviceSpec& device) {
  return device.isa.avx512_bf16 || device.isa.amx;
}

GemmEngine resolve(GemmEngine engine, GemmRole role, DType dtype, const hardware::DeviceSpec& device) {
  if (engine != GemmEngine::kAuto) return engine;
  if (dtype != DType::kBF16 || !multiplies_bf16(device)) return GemmEngine::kPanels;
  if (!device.library_bf16) return GemmEngine::kPairs;
  // For a weight gradient the library first transposes and repacks both operands completely.
  return role == GemmRole::kWeightGrad && detail::multiplies_pairs_fast(device.isa) ? GemmEngine::kPairs
                                                                                    : GemmEngine::kOneDnn;
}

void check(const GemmSpec& spec) {
  STRATA_CHECK(spec.m >= 0 && spec.n >= 0 && spec.k >= 0, "[gemm] sizes m={} n={} k={}: expected at least 0",
               spec.m, spec.n, spec.k);
  STRATA_CHECK(spec.dtype == DType::kF32 || spec.dtype == DType::kBF16 || spec.dtype == DType::kF16,
               "[gemm] activations are {}: expected f32, bf16 or f16", name_of(spec.dtype));
  STRATA_CHECK(
      spec.out_dtype == DType::kF32 || (spec.out_dtype == spec.dtype && spec.role != GemmRole::kWeightGrad),
      "[gemm] result is {}: expected f32 or, except for weight gradients, the activations' dtype {}",
      name_of(spec.out_dtype), name_of(spec.dtype));
  STRATA_CHECK(!spec.bias || spec.role == GemmRole::kForward, "[gemm] only the forward GEMM takes a bias");
  STRATA_CHECK(!spec.accumulate || spec.role == GemmRole::kWeightGrad,
               "[gemm] only weight gradients accumulate");
  STRATA_CHECK(spec.x_stride >= spec.k && spec.y_stride >= spec.n,
               "[gemm] strides x={} y={}: expected at least k={} n={}", spec.x_stride, spec.y_stride, spec.k,
               spec.n);
}

detail::PanelGemm panels_of(const GemmSpec& spec, const hardware::DeviceSpec& device, bool pairs) {
  detail::PanelGemm gemm;
  gemm.pairs = pairs;
  gemm.shape = pairs ? detail::kPairPanels : detail::panel_shape_of(device.isa);
  gemm.out_dtype = spec.out_dtype;
  switch (spec.role) {
    case GemmRole::kForward:
      gemm.rows = spec.m;
      gemm.cols = spec.n;
      gemm.depth = spec.k;
      gemm.a = {.dtype = spec.dtype, .stride = spec.x_stride};
      gemm.b = {.dtype = DType::kF32, .stride = spec.k, .depth_major = false, .rounded_to = spec.dtype};
      gemm.out_stride = spec.y_stride;
      break;
    case GemmRole::kInputGrad:
      gemm.rows = spec.m;
      gemm.cols = spec.k;
      gemm.depth = spec.n;
      gemm.a = {.dtype = spec.dtype, .stride = spec.y_stride};
      gemm.b = {.dtype = DType::kF32, .stride = spec.k, .depth_major = true, .rounded_to = spec.dtype};
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
  static_assert(detail::kPairPanels.nr == detail::kEncodedColumns);
  if (pairs && spec.role != GemmRole::kWeightGrad)
    gemm.b_panel_depth = align_up(gemm.depth, detail::kEncodedDepth);
  detail::plan_panels(gemm, std::max(1, device.threads));
  return gemm;
}

}  // namespace

struct Gemm::Library {
  detail::OneDnnGemm product;
};

struct WeightPacker::Engine {
  virtual ~Engine() = default;
  virtual void pack(void* dst, const float* master) = 0;
};

namespace {

void run_skinny(const GemmSpec& spec, const GemmArgs& args) {
  detail::multiply_skinny({spec.m, spec.n, spec.k, spec.x_stride, spec.y_stride},
                          static_cast<const float*>(args.a), static_cast<const float*>(args.b), args.bias,
                          static_cast<float*>(args.c), static_cast<float*>(args.scratch));
}

void run_weight_rows(const GemmSpec& s, const GemmArgs& args) {
  detail::multiply_skinny({.rows = s.m, .n = s.n, .k = s.k, .x_stride = s.x_stride, .y_stride = s.y_stride},
                          static_cast<const BF16*>(args.a), static_cast<const BF16*>(args.b), args.bias,
                          args.c, s.out_dtype, static_cast<float*>(args.scratch));
}

class OneDnnEngine final : public WeightPacker::Engine {
 public:
  explicit OneDnnEngine(const WeightEncoding& encoding) : reorder_(encoding) {}
  void pack(void* dst, const float* master) override { reorder_.pack(dst, master); }

 private:
  detail::OneDnnPacker reorder_;
};

// Packs weights for bf16 dot products.
class PairPacker final : public WeightPacker::Engine {
 public:
  explicit PairPacker(const WeightEncoding& encoding) : encoding_(encoding) {}
  void pack(void* dst, const float* master) override {
    auto* const to = static_cast<BF16*>(dst);
    clear_encoding(encoding_, to);
    parallel_ranges(encoding_.n, 4 * kEncodedRows,
                    [&](int64_t begin, int64_t end) { encode_rows(encoding_, to, master, begin, end); });
  }

 private:
  WeightEncoding encoding_;
};

class RowPacker final : public WeightPacker::Engine {
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

}  // namespace

std::string_view name_of(GemmKernel kernel) {
  static constexpr std::string_view kNames[] = {"panels", "pairs", "sgemm", "skinny", "skinny", "onednn"};
  return kNames[static_cast<size_t>(kernel)];
}

GemmPlan plan_gemm(const GemmSpec& wanted, const hardware::DeviceSpec& device, GemmEngine engine) {
  GemmPlan plan;
  plan.spec = wanted;
  if (plan.spec.x_stride == 0) plan.spec.x_stride = wanted.k;
  if (plan.spec.y_stride == 0) plan.spec.y_stride = wanted.n;
  check(plan.spec);
  plan.cost = gemm_cost(plan.spec);
  plan.threads = std::max(1, device.threads);
  const bool empty = wanted.m == 0 || wanted.n == 0 || wanted.k == 0;
  const GemmEngine resolved = resolve(engine, wanted.role, wanted.dtype, device);
  if (wanted.weight_rows) {
    STRATA_CHECK(wanted.role == GemmRole::kForward && wanted.dtype == DType::kBF16,
                 "[gemm] only the forward GEMM of bf16 reads a weight as rows");
    plan.scratch_bytes = detail::skinny_scratch_bytes(wanted.m, wanted.k, wanted.dtype);
    plan.kernel = GemmKernel::kWeightRows;
  } else if (!empty && resolved == GemmEngine::kPairs) {
    plan.kernel = GemmKernel::kPairs;
    plan.panels = panels_of(plan.spec, device, true);
    plan.scratch_bytes = plan.panels.scratch_bytes;
  } else if (!empty && resolved == GemmEngine::kOneDnn) {
    plan.scratch_bytes = detail::onednn_scratch_bytes(plan.spec, device);
    plan.kernel = GemmKernel::kOneDnn;
  } else if (engine == GemmEngine::kAuto && wanted.role == GemmRole::kForward &&
             wanted.dtype == DType::kF32 && wanted.m <= detail::kSkinnyRows && !wanted.rows_alone) {
    plan.scratch_bytes = detail::skinny_scratch_bytes(wanted.m, wanted.k, wanted.dtype);
    plan.kernel = GemmKernel::kSkinny;
  } else if (!empty && engine == GemmEngine::kAuto && detail::prefers_sgemm(plan.spec, device)) {
    plan.kernel = GemmKernel::kSgemm;
  } else {
    plan.kernel = GemmKernel::kPanels;
    plan.panels = panels_of(plan.spec, device, false);
    plan.scratch_bytes = empty ? 0 : plan.panels.scratch_bytes;
  }
  return plan;
}

Gemm::Gemm(const GemmPlan& plan) : plan_(plan) {
  if (plan.kernel == GemmKernel::kPanels || plan.kernel == GemmKernel::kPairs)
    detail::check_panels(plan.panels);
  if (plan.kernel != GemmKernel::kOneDnn) return;
  library_ = std::make_unique<Library>(Library{detail::OneDnnGemm(plan.spec, plan.threads)});
  STRATA_CHECK(library_->product.scratch_bytes() <= plan.scratch_bytes,
               "[gemm] plan has {} bytes of scratch, the library needs {}: the plan is for another processor",
               plan.scratch_bytes, library_->product.scratch_bytes());
}

Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;

std::string Gemm::engine() const {
  return library_ ? library_->product.name() : std::string(name_of(plan_.kernel));
}

void Gemm::run(const GemmArgs& args) {
  switch (plan_.kernel) {
    case GemmKernel::kPanels:
    case GemmKernel::kPairs:
      return detail::run_panels(plan_.panels, args.a, args.b, args.bias, args.c, args.scratch);
    case GemmKernel::kSgemm:
      return detail::run_sgemm(plan_.spec, args);
    case GemmKernel::kSkinny:
      return run_skinny(plan_.spec, args);
    case GemmKernel::kWeightRows:
      return run_weight_rows(plan_.spec, args);
    case GemmKernel::kOneDnn:
      return library_->product.run(args);
  }
}

WeightEncoding plan_weight_encoding(GemmRole role, int64_t n, int64_t k, DType dtype,
                                    const hardware::DeviceSpec& device, GemmEngine engine) {
  STRATA_CHECK(role != GemmRole::kWeightGrad, "[gemm] a weight gradient does not read a weight");
  WeightEncoding encoding{.id = "plain", .role = role, .n = n, .k = k, .dtype = dtype};
  if (resolve(engine, role, dtype, device) != GemmEngine::kPanels && n > 0 && k > 0)
    detail::plan_onednn_encoding(encoding);
  return encoding;
}

constexpr std::string_view kRowsId = "bf16 rows";

bool encodes_by_rows(const WeightEncoding& encoding) {
  return !encoding.plain && encoding.dtype == DType::kBF16 && encoding.id != kRowsId;
}

bool prefers_weight_rows(int64_t m, DType dtype, const hardware::DeviceSpec& device) {
  return dtype == DType::kBF16 && m <= detail::kSkinnyRows && !multiplies_bf16(device);
}

WeightEncoding plan_weight_rows(int64_t n, int64_t k) {
  return {.id = std::string(kRowsId),
          .plain = false,
          .bytes = n * k * size_of(DType::kBF16),
          .n = n,
          .k = k,
          .dtype = DType::kBF16};
}

WeightPacker::WeightPacker(const WeightEncoding& encoding) {
  if (encoding.plain) return;
  if (encoding.id == kRowsId) {
    engine_ = std::make_unique<RowPacker>(encoding.n * encoding.k);
  } else if (encodes_by_rows(encoding)) {
    engine_ = std::make_unique<PairPacker>(encoding);
  } else {
    engine_ = std::make_unique<OneDnnEngine>(encoding);
  }
}

WeightPacker::~WeightPacker() = default;
WeightPacker::WeightPacker(WeightPacker&&) noexcept = default;

void WeightPacker::pack(void* dst, const float* master) {
  if (engine_) engine_->pack(dst, master);
}

}  // namespace strata::cpu
