#include "kernels/cpu/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "fixtures/every_target.h"
#include "fixtures/host_device.h"
#include "kernels/cpu/gemm_onednn.h"
#include "tensor/arena.h"

namespace strata::cpu {
namespace {

// A matrix with NaN padding between its rows, so that reading or writing the padding shows.
struct Matrix {
  int64_t rows, cols, stride;
  DType dtype;
  Arena memory;

  Matrix(int64_t rows_, int64_t cols_, int64_t stride_, DType dtype_)
      : rows(rows_),
        cols(cols_),
        stride(stride_),
        dtype(dtype_),
        memory(rows_ * stride_ * size_of(dtype_) + 64) {
    for (int64_t i = 0; i < rows * stride; ++i) set(i, std::numeric_limits<float>::quiet_NaN());
  }
  template <typename T>
  T& element(int64_t i) const {
    return reinterpret_cast<T*>(const_cast<std::byte*>(memory.data()))[i];
  }
  void set(int64_t i, float value) {
    if (dtype == DType::kF32) element<float>(i) = value;
    if (dtype == DType::kBF16) element<BF16>(i) = BF16(value);
    if (dtype == DType::kF16) element<F16>(i) = F16(value);
  }
  float flat(int64_t i) const {
    if (dtype == DType::kF32) return element<float>(i);
    return dtype == DType::kBF16 ? static_cast<float>(element<BF16>(i)) : static_cast<float>(element<F16>(i));
  }
  double at(int64_t r, int64_t c) const { return flat(r * stride + c); }
  void fill(uint64_t seed) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        set(r * stride + c, static_cast<float>(state >> 40) * 0x1p-23f - 1.0f);
      }
    }
  }
};

struct Case {
  int64_t m, n, k;
  int64_t x_pad = 0;
  int64_t y_pad = 0;
  bool bias = false;
};

struct Setting {
  DType dtype;
  DType out_dtype;
  GemmEngine engine;
};

double rounded(double value, DType dtype) {
  if (dtype == DType::kF16) return static_cast<double>(static_cast<float>(F16(static_cast<float>(value))));
  return dtype == DType::kBF16 ? static_cast<double>(static_cast<float>(BF16(static_cast<float>(value))))
                               : value;
}

class GemmRoles : public testing::TestWithParam<Setting> {
 protected:
  // A master weight in the layout that the plan requires.
  struct Weight {
    Arena packed;
    const void* data;
    Weight(GemmRole role, const Matrix& master, const Setting& setting) {
      const auto encoding = plan_weight_encoding(role, master.rows, master.cols, setting.dtype,
                                                 fixtures::host_device(), setting.engine);
      const auto* values = reinterpret_cast<const float*>(master.memory.data());
      if (encoding.plain) {
        data = values;
      } else {
        packed = Arena(encoding.bytes + 64);
        WeightPacker(encoding).pack(packed.data(), values);
        data = packed.data();
      }
    }
  };

  static void run_twice(const GemmPlan& plan, GemmArgs args, Matrix& result, bool accumulate) {
    Arena scratch(plan.scratch_bytes + 64);
    std::memset(scratch.data(), 0xff, static_cast<size_t>(scratch.size()));  // NaN
    args.scratch = scratch.data();
    args.c = result.memory.data();
    const auto bytes = static_cast<size_t>(result.memory.size());
    const std::vector<std::byte> before(result.memory.data(), result.memory.data() + bytes);
    Gemm(plan).run(args);
    const std::vector<std::byte> first(result.memory.data(), result.memory.data() + bytes);
    if (accumulate) std::memcpy(result.memory.data(), before.data(), bytes);
    Gemm(plan).run(args);
    EXPECT_EQ(std::memcmp(first.data(), result.memory.data(), bytes), 0)
        << "different bits in the second run";
  }

  // A sum of f32 terms in any order differs from the exact one by less than depth * 2^-23 * the sum of
  // magnitudes; then one final rounding.
  static void expect_close(const Matrix& result, int64_t r, int64_t c, double want, double magnitude,
                           int64_t depth) {
    const double got = result.at(r, c);
    const double sums = 0x1p-23 * static_cast<double>(depth + 2) * magnitude;
    const double rounding = result.dtype == DType::kBF16  ? std::abs(want) * 0x1p-8
                            : result.dtype == DType::kF16 ? std::abs(want) * 0x1p-11 + 0x1p-25
                                                          : 0.0;
    ASSERT_LE(std::abs(got - want), sums + rounding + 1e-30)
        << "row " << r << " column " << c << ": " << got << ", expected " << want;
  }
  static void expect_padding_untouched(const Matrix& result) {
    for (int64_t r = 0; r < result.rows; ++r) {
      for (int64_t c = result.cols; c < result.stride; ++c) ASSERT_TRUE(std::isnan(result.at(r, c)));
    }
  }
};

const Case kCases[] = {
    {1, 1, 1},
    {7, 5, 3},
    {6, 16, 8},
    {97, 33, 1},
    {13, 1, 40},
    {1, 70, 129, 0, 0, true},
    {64, 48, 32, 16, 16, true},
    {131, 77, 401, 3, 5, true},
    {200, 530, 20},
    {33, 40, 1700, 0, 8},
    {3, 4099, 37, 1, 2, true},
    {110, 290, 1100, 1, 3, true},  // several depth blocks, a packed for each task
    {7, 2100, 1030},               // several column blocks
    {7, 9, 16501, 1, 3, true},     // so deep that bf16 results also take several blocks
    {9, 16501, 21, 1, 3},
    {0, 5, 7},
    {4, 0, 7},
    {4, 5, 0, 0, 0, true},
};

TEST_P(GemmRoles, ForwardEqualsTheNaiveMatmul) {
  for (const Case& t : kCases) {
    SCOPED_TRACE(testing::Message() << "m=" << t.m << " n=" << t.n << " k=" << t.k);
    Matrix x(t.m, t.k, t.k + t.x_pad, GetParam().dtype);
    Matrix w(t.n, t.k, t.k, DType::kF32);
    Matrix y(t.m, t.n, t.n + t.y_pad, GetParam().out_dtype);
    Matrix bias(1, t.n, t.n, DType::kF32);
    x.fill(1);
    w.fill(2);
    bias.fill(3);
    const auto plan = fixtures::plan_here({.role = GemmRole::kForward,
                                           .m = t.m,
                                           .n = t.n,
                                           .k = t.k,
                                           .dtype = GetParam().dtype,
                                           .out_dtype = GetParam().out_dtype,
                                           .bias = t.bias,
                                           .x_stride = x.stride,
                                           .y_stride = y.stride},
                                          GetParam().engine);
    const Weight weight(GemmRole::kForward, w, GetParam());
    run_twice(plan,
              {.a = x.memory.data(),
               .b = weight.data,
               .bias = t.bias ? reinterpret_cast<const float*>(bias.memory.data()) : nullptr},
              y, false);
    for (int64_t r = 0; r < t.m; ++r) {
      for (int64_t c = 0; c < t.n; ++c) {
        double want = t.bias ? bias.at(0, c) : 0.0;
        double magnitude = std::abs(want);
        for (int64_t i = 0; i < t.k; ++i) {
          const double product = x.at(r, i) * rounded(w.at(c, i), GetParam().dtype);
          want += product;
          magnitude += std::abs(product);
        }
        expect_close(y, r, c, want, magnitude, t.k);
      }
    }
    expect_padding_untouched(y);
  }
}

TEST_P(GemmRoles, InputGradientEqualsTheNaiveMatmul) {
  for (const Case& t : kCases) {
    SCOPED_TRACE(testing::Message() << "m=" << t.m << " n=" << t.n << " k=" << t.k);
    Matrix dy(t.m, t.n, t.n + t.y_pad, GetParam().dtype);
    Matrix w(t.n, t.k, t.k, DType::kF32);
    Matrix dx(t.m, t.k, t.k + t.x_pad, GetParam().out_dtype);
    dy.fill(4);
    w.fill(5);
    const auto plan = fixtures::plan_here({.role = GemmRole::kInputGrad,
                                           .m = t.m,
                                           .n = t.n,
                                           .k = t.k,
                                           .dtype = GetParam().dtype,
                                           .out_dtype = GetParam().out_dtype,
                                           .x_stride = dx.stride,
                                           .y_stride = dy.stride},
                                          GetParam().engine);
    const Weight weight(GemmRole::kInputGrad, w, GetParam());
    run_twice(plan, {.a = dy.memory.data(), .b = weight.data}, dx, false);
    for (int64_t r = 0; r < t.m; ++r) {
      for (int64_t c = 0; c < t.k; ++c) {
        double want = 0.0;
        double magnitude = 0.0;
        for (int64_t i = 0; i < t.n; ++i) {
          const double product = dy.at(r, i) * rounded(w.at(i, c), GetParam().dtype);
          want += product;
          magnitude += std::abs(product);
        }
        expect_close(dx, r, c, want, magnitude, t.n);
      }
    }
    expect_padding_untouched(dx);
  }
}

TEST_P(GemmRoles, WeightGradientOverwritesOrAccumulates) {
  for (const Case& t : kCases) {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << "m=" << t.m << " n=" << t.n << " k=" << t.k << " accumulate=" << accumulate);
      // Tokens are the depth here: enough for several blocks.
      const int64_t m = t.m == 131 ? 2100 : t.m;
      Matrix dy(m, t.n, t.n + t.y_pad, GetParam().dtype);
      Matrix x(m, t.k, t.k + t.x_pad, GetParam().dtype);
      Matrix dw(t.n, t.k, t.k, DType::kF32);
      dy.fill(6);
      x.fill(7);
      if (accumulate) dw.fill(8);
      std::vector<double> before;
      for (int64_t i = 0; i < t.n * t.k; ++i) before.push_back(accumulate ? dw.flat(i) : 0.0);
      const auto plan = fixtures::plan_here({.role = GemmRole::kWeightGrad,
                                             .m = m,
                                             .n = t.n,
                                             .k = t.k,
                                             .dtype = GetParam().dtype,
                                             .accumulate = accumulate,
                                             .x_stride = x.stride,
                                             .y_stride = dy.stride},
                                            GetParam().engine);
      run_twice(plan, {.a = dy.memory.data(), .b = x.memory.data()}, dw, accumulate);
      // All columns of every tenth row: the naive sum takes long.
      for (int64_t r = 0; r<t.n; r += t.n> 70 ? 10 : 1) {
        for (int64_t c = 0; c < t.k; ++c) {
          double want = before[static_cast<size_t>(r * t.k + c)];
          double magnitude = std::abs(want);
          for (int64_t i = 0; i < m; ++i) {
            const double product = dy.at(i, r) * x.at(i, c);
            want += product;
            magnitude += std::abs(product);
          }
          expect_close(dw, r, c, want, magnitude, m);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, GemmRoles,
                         testing::Values(Setting{DType::kF32, DType::kF32, GemmEngine::kPanels},
                                         Setting{DType::kF32, DType::kF32, GemmEngine::kOneDnn},
                                         Setting{DType::kBF16, DType::kBF16, GemmEngine::kPanels},
                                         Setting{DType::kBF16, DType::kF32, GemmEngine::kPanels},
                                         Setting{DType::kBF16, DType::kBF16, GemmEngine::kPairs},
                                         Setting{DType::kBF16, DType::kF32, GemmEngine::kPairs},
                                         Setting{DType::kF16, DType::kF16, GemmEngine::kAuto},
                                         Setting{DType::kBF16, DType::kBF16, GemmEngine::kAuto}));

// The operands of all three roles, and the results of the in-house GEMM.
struct InHouseResults {
  GemmEngine engine;
  Matrix x, w, dy;

  InHouseResults(int64_t tokens, int64_t outputs, int64_t inputs, GemmEngine own = GemmEngine::kPanels)
      : engine(own),
        x(tokens, inputs, inputs, dtype()),
        w(outputs, inputs, inputs, DType::kF32),
        dy(tokens, outputs, outputs, dtype()) {
    x.fill(1);
    w.fill(2);
    dy.fill(3);
  }
  DType dtype() const { return engine == GemmEngine::kPairs ? DType::kBF16 : DType::kF32; }
  std::vector<float> result(GemmRole role, const hardware::DeviceSpec& device) const {
    const GemmPlan plan =
        plan_gemm({.role = role, .m = x.rows, .n = w.rows, .k = x.cols, .dtype = dtype()}, device, engine);
    Arena scratch(plan.scratch_bytes), weight;
    if (role != GemmRole::kWeightGrad) {
      const auto encoding = plan_weight_encoding(role, w.rows, w.cols, dtype(), device, engine);
      weight = Arena(encoding.plain ? 0 : encoding.bytes);
      WeightPacker(encoding).pack(weight.data(), reinterpret_cast<const float*>(w.memory.data()));
    }
    std::vector<float> c(static_cast<size_t>(std::max(x.rows * std::max(x.cols, w.rows), w.rows * w.cols)),
                         0.0f);
    Gemm(plan).run({.a = role == GemmRole::kForward ? x.memory.data() : dy.memory.data(),
                    .b = role == GemmRole::kWeightGrad ? x.memory.data()
                         : weight.size() > 0           ? weight.data()
                                                       : w.memory.data(),
                    .c = c.data(),
                    .scratch = scratch.data()});
    return c;
  }
};

TEST(GemmTargets, EveryInstructionSetComputesTheSame) {
  const InHouseResults products(61, 45, 70);
  const auto results = [&](GemmRole role, int64_t target) {
    hardware::DeviceSpec device;  // has no better instruction set than the target
    device.isa = {.avx2 = target <= HWY_AVX2, .avx512 = target <= HWY_AVX3, .neon = HWY_ARCH_ARM_A64 != 0};
    device.threads = compute_threads();
    return products.result(role, device);
  };
  for (const GemmRole role : {GemmRole::kForward, GemmRole::kInputGrad, GemmRole::kWeightGrad}) {
    const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
    const std::vector<float> best = results(role, targets & -targets);
    strata::fixtures::on_every_target([&](int64_t target) {
      const std::vector<float> got = results(role, target);
      for (size_t i = 0; i < best.size(); ++i) ASSERT_NEAR(got[i], best[i], 2e-5) << i;
    });
  }
}

// Pairs of thread counts: planned for, run by.
using Threads = std::vector<std::pair<int, int>>;
void expect_same_bits_for(const InHouseResults& products, const Threads& threads) {
  const int before = compute_threads();
  for (const GemmRole role : {GemmRole::kForward, GemmRole::kInputGrad, GemmRole::kWeightGrad}) {
    std::vector<float> first;
    for (const auto& [planned, run] : threads) {
      hardware::DeviceSpec device = fixtures::host_device();
      device.threads = planned;
      set_compute_threads(run);
      const std::vector<float> c = products.result(role, device);
      set_compute_threads(before);
      if (first.empty()) first = c;
      EXPECT_EQ(std::memcmp(c.data(), first.data(), c.size() * sizeof(float)), 0)
          << "role " << static_cast<int>(role) << ", planned for " << planned << " threads, run by " << run;
    }
  }
}

// Includes plans for another number of threads than run them.
TEST(GemmThreads, AnyNumberGivesTheSameBits) {
  for (const GemmEngine engine : {GemmEngine::kPanels, GemmEngine::kPairs}) {
    // The model of the bf16 instruction is slow.
    expect_same_bits_for(InHouseResults(engine == GemmEngine::kPairs ? 500 : 1500, 310, 290, engine),
                         {{1, 1}, {2, 2}, {5, 5}, {2, 5}, {5, 2}});
  }
}

// Covers every GEMM implementation that may compute a small result; with great depth the library splits the
// depth among threads.
TEST(GemmThreads, SmallModelsGetTheSameBits) {
  for (const auto& [m, n, k] :
       std::vector<std::array<int64_t, 3>>{{64, 48, 32}, {24, 120, 2000}, {3000, 40, 40}, {48, 48, 3000}}) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k));
    expect_same_bits_for(InHouseResults(m, n, k, GemmEngine::kAuto),
                         {{1, 1}, {2, 2}, {3, 3}, {5, 5}, {16, 16}});
  }
}

// No bit may change if programs split GEMMs into ranges of rows.
TEST(GemmRows, SameBitsAloneAndAmongOthers) {
  hardware::DeviceSpec device = fixtures::host_device();
  device.library_bf16 = false;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [m, n, k] :
         std::vector<std::array<int64_t, 3>>{{48, 48, 32}, {200, 96, 48}, {96, 64, 600}}) {
      for (const GemmRole role : {GemmRole::kForward, GemmRole::kInputGrad}) {
        const int64_t in = role == GemmRole::kForward ? k : n, out = role == GemmRole::kForward ? n : k;
        Matrix a(m, in, in, dtype), w(n, k, k, DType::kF32), whole(m, out, out, DType::kF32),
            part(m, out, out, DType::kF32);
        a.fill(1);
        w.fill(2);
        const WeightEncoding encoding = plan_weight_encoding(role, n, k, dtype, device);
        Arena packed(encoding.plain ? 0 : encoding.bytes);
        WeightPacker(encoding).pack(packed.data(), reinterpret_cast<const float*>(w.memory.data()));
        const auto multiply = [&, n = n, k = k](int64_t row, int64_t rows, Matrix& c) {
          const GemmPlan plan = plan_gemm(
              {.role = role, .m = rows, .n = n, .k = k, .dtype = dtype, .rows_alone = true}, device);
          Arena scratch(plan.scratch_bytes + 64);
          Gemm(plan).run({.a = a.memory.data() + row * in * size_of(dtype),
                          .b = encoding.plain ? w.memory.data() : packed.data(),
                          .c = c.memory.data() + row * out * size_of(DType::kF32),
                          .scratch = scratch.data()});
        };
        multiply(0, m, whole);
        for (int64_t row = 0; row < m; row += m / 4) multiply(row, m / 4, part);
        EXPECT_EQ(std::memcmp(whole.memory.data(), part.memory.data(),
                              static_cast<size_t>(m * out * size_of(DType::kF32))),
                  0)
            << m << " x " << n << " x " << k << " " << name_of(dtype) << ", role " << static_cast<int>(role);
      }
    }
  }
}

// The in-house GEMM computes bf16 weight gradients if the processor has fast bf16 dot products; the library
// handles everything else that reads a packed weight.
TEST(GemmPlan, Bf16EngineDependsOnTheProcessor) {
  const auto kernel_of = [](GemmRole role, const hardware::IsaFlags& isa) {
    hardware::DeviceSpec device;
    device.isa = isa;
    return plan_gemm({.role = role, .m = 64, .n = 64, .k = 64, .dtype = DType::kBF16}, device).kernel;
  };
  const hardware::IsaFlags none{.avx2 = true, .avx512 = true},
      pairs{.avx2 = true, .avx512 = true, .avx512_bf16 = true},
      tiles{.avx2 = true, .avx512 = true, .avx512_bf16 = true, .amx = true};
  for (const GemmRole role : {GemmRole::kForward, GemmRole::kInputGrad, GemmRole::kWeightGrad}) {
    EXPECT_EQ(kernel_of(role, none), GemmKernel::kPanels);
    EXPECT_EQ(kernel_of(role, pairs),
              role == GemmRole::kWeightGrad ? GemmKernel::kPairs : GemmKernel::kOneDnn);
    EXPECT_EQ(kernel_of(role, tiles), GemmKernel::kOneDnn);
  }
}

// Roles share a buffer if their layout ids are equal, so equal ids must mean equal bytes, even for square
// weights.
TEST(WeightEncoding, EqualIdsMeanEqualBytes) {
  constexpr int64_t kSide = 48;
  std::vector<float> master(kSide * kSide);
  std::iota(master.begin(), master.end(), 1.0f);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const GemmEngine engine : {GemmEngine::kAuto, GemmEngine::kOneDnn}) {
      if (engine == GemmEngine::kOneDnn && dtype == DType::kBF16 && !detail::onednn_has_native_bf16())
        continue;
      std::map<std::string, std::vector<std::byte>> bytes_of;
      for (const GemmRole role : {GemmRole::kForward, GemmRole::kInputGrad}) {
        const auto encoding =
            plan_weight_encoding(role, kSide, kSide, dtype, fixtures::host_device(), engine);
        if (encoding.plain) continue;
        std::vector<std::byte> bytes(static_cast<size_t>(encoding.bytes));
        WeightPacker(encoding).pack(bytes.data(), master.data());
        const auto [found, is_new] = bytes_of.try_emplace(encoding.id, bytes);
        EXPECT_TRUE(is_new || found->second == bytes) << encoding.id;
      }
    }
  }
}

TEST(GemmPlan, RejectsInvalidSpecs) {
  EXPECT_THROW(fixtures::plan_here({.m = -1, .n = 1, .k = 1}), InternalError);
  EXPECT_THROW(fixtures::plan_here({.role = GemmRole::kWeightGrad, .m = 1, .n = 1, .k = 1, .bias = true}),
               InternalError);
  EXPECT_THROW(fixtures::plan_here({.m = 1, .n = 1, .k = 1, .accumulate = true}), InternalError);
  EXPECT_THROW(fixtures::plan_here({.m = 1, .n = 1, .k = 8, .x_stride = 4}), InternalError);
  EXPECT_THROW(fixtures::plan_here({.m = 1, .n = 1, .k = 1, .out_dtype = DType::kBF16}), InternalError);
  EXPECT_THROW(plan_weight_encoding(GemmRole::kWeightGrad, 4, 4, DType::kF32, fixtures::host_device()),
               InternalError);
}

}  // namespace
}  // namespace strata::cpu
