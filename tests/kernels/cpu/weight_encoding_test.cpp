// Packed weights written a few rows at a time: equal to oneDNN's reorder, and to packing after an update.
#include "kernels/cpu/weight_encoding.h"

#include "kernels/cpu/array_testing.h"
#include "kernels/cpu/gemm_onednn.h"
#include "kernels/cpu/optimizer.h"

namespace strata::cpu {
namespace {

using testing::Array;

struct Sides {
  int64_t n, k;
};
// Whole and ragged blocks, single rows and columns, odd depths.
constexpr Sides kSides[] = {{64, 64}, {128, 96}, {1, 1},   {1, 70},  {70, 1},    {15, 17},
                            {16, 33}, {63, 65},  {65, 63}, {33, 16}, {130, 200}, {211, 520}};
constexpr GemmRole kRoles[] = {GemmRole::kForward, GemmRole::kInputGrad};

hardware::DeviceSpec with_pairs() {
  hardware::DeviceSpec device;
  device.isa.avx512_bf16 = true;
  return device;
}

WeightEncoding encoding_of(GemmRole role, Sides sides) {
  return plan_weight_encoding(role, sides.n, sides.k, DType::kBF16, with_pairs());
}

std::vector<std::byte> packed(const WeightEncoding& encoding, const Array& master) {
  std::vector<std::byte> bytes(static_cast<size_t>(encoding.bytes), std::byte{0xff});
  WeightPacker(encoding).pack(bytes.data(), master.f32());
  return bytes;
}

TEST(WeightEncoding, MatchesTheLibrary) {
  for (const Sides sides : kSides) {
    const Array master = Array::random(DType::kF32, sides.n * sides.k, 1);
    for (const GemmRole role : kRoles) {
      const WeightEncoding encoding = encoding_of(role, sides);
      ASSERT_TRUE(encodes_by_rows(encoding));
      std::vector<std::byte> wanted(static_cast<size_t>(encoding.bytes), std::byte{0xff});
      detail::OneDnnPacker(encoding).pack(wanted.data(), master.f32());
      EXPECT_TRUE(packed(encoding, master) == wanted) << sides.n << " x " << sides.k << " " << encoding.id;
    }
  }
}

TEST(WeightEncoding, RoundsSpecialValuesLikeTheLibrary) {
  const Sides sides{16, 4};
  Array master = Array::random(DType::kF32, sides.n * sides.k, 1);
  const float inf = std::numeric_limits<float>::infinity(), tie = 1.00390625f;
  for (const auto& [at, value] :
       std::vector<std::pair<int64_t, float>>{{0, inf},
                                              {1, -inf},
                                              {2, tie},
                                              {3, 1.01171875f},
                                              {4, 0.0f},
                                              {5, std::numeric_limits<float>::max()}})
    master.f32()[at] = value;
  for (const GemmRole role : kRoles) {
    const WeightEncoding encoding = encoding_of(role, sides);
    std::vector<std::byte> wanted(static_cast<size_t>(encoding.bytes));
    detail::OneDnnPacker(encoding).pack(wanted.data(), master.f32());
    const std::vector<std::byte> got = packed(encoding, master);
    for (size_t i = 0; i + 1 < got.size(); i += 2) {
      const auto value = [&](const std::vector<std::byte>& bytes) {
        return std::to_integer<int>(bytes[i]) | std::to_integer<int>(bytes[i + 1]) << 8;
      };
      EXPECT_EQ(value(got), value(wanted)) << encoding.id << ", value " << i / 2;
    }
  }
}

TEST(WeightEncoding, SameBitsForAnyNumberOfThreads) {
  const Sides sides{211, 520};
  const Array master = Array::random(DType::kF32, sides.n * sides.k, 1);
  for (const GemmRole role : kRoles)
    testing::expect_same_bits([&] { return packed(encoding_of(role, sides), master); });
}

class EncodedUpdate : public ::testing::TestWithParam<Sides> {
 protected:
  static UpdateScalars scalars() { return {.lr = 0.01f, .grad_scale = 0.5f}; }
  static constexpr AdamWConstants kConstants{.weight_decay = 0.1f, .lr_scale = 2};
  struct State {
    Array p, m, v, grad;
    explicit State(Sides sides)
        : p(Array::random(DType::kF32, sides.n * sides.k, 1)),
          m(Array::random(DType::kF32, sides.n * sides.k, 2)),
          v(Array::random(DType::kF32, sides.n * sides.k, 3, 0, 1)),
          grad(Array::random(DType::kF32, sides.n * sides.k, 4)) {}
    AdamWArrays arrays() { return {p.f32(), m.f32(), v.f32(), grad.f32()}; }
  };
  // `from` in the packed layouts of both matmuls.
  struct Copies {
    std::vector<WeightEncoding> copies;
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::byte*> places;
    Copies(Sides sides, const Array& from) {
      for (const GemmRole role : kRoles) {
        copies.push_back(encoding_of(role, sides));
        memory.push_back(packed(copies.back(), from));
      }
      for (auto& bytes : memory) places.push_back(bytes.data());
    }
  };
};

TEST_P(EncodedUpdate, EqualsPackingAfterwards) {
  const Sides sides = GetParam();
  State plain(sides), fused(sides);
  Copies copies(sides, fused.p);
  const UpdateScalars step = scalars();
  for (int i = 0; i < 2; ++i) {
    adamw_update(sides.n * sides.k, plain.arrays(), &step, kConstants);
    adamw_update_encoded(sides.n, sides.k, fused.arrays(), &step, kConstants, copies.copies,
                         copies.places.data());
    EXPECT_TRUE(plain.p.bytes() == fused.p.bytes());
    EXPECT_TRUE(plain.m.bytes() == fused.m.bytes());
    EXPECT_TRUE(plain.v.bytes() == fused.v.bytes());
    for (size_t c = 0; c < copies.copies.size(); ++c)
      EXPECT_TRUE(copies.memory[c] == packed(copies.copies[c], plain.p)) << c;
  }
}

TEST_P(EncodedUpdate, SameBitsForAnyNumberOfThreads) {
  const Sides sides = GetParam();
  testing::expect_same_bits([&] {
    State state(sides);
    Copies copies(sides, state.p);
    const UpdateScalars step = scalars();
    adamw_update_encoded(sides.n, sides.k, state.arrays(), &step, kConstants, copies.copies,
                         copies.places.data());
    std::vector<std::byte> all = state.p.bytes();
    for (const auto& bytes : copies.memory) all.insert(all.end(), bytes.begin(), bytes.end());
    return all;
  });
}

TEST_P(EncodedUpdate, SkippedLeavesEverythingUntouched) {
  const Sides sides = GetParam();
  State state(sides);
  Copies copies(sides, state.p);
  const std::vector<std::byte> before = state.p.bytes();
  const auto encodings = copies.memory;
  UpdateScalars step = scalars();
  step.skip = 1;
  adamw_update_encoded(sides.n, sides.k, state.arrays(), &step, kConstants, copies.copies,
                       copies.places.data());
  EXPECT_TRUE(state.p.bytes() == before);
  EXPECT_TRUE(copies.memory == encodings);
}

INSTANTIATE_TEST_SUITE_P(Sides, EncodedUpdate, ::testing::ValuesIn(kSides), [](const auto& sides) {
  return std::to_string(sides.param.n) + "x" + std::to_string(sides.param.k);
});

}  // namespace
}  // namespace strata::cpu
