#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "fixtures/every_target.h"
#include "tensor/dtype.h"

namespace strata {
namespace {

// Rounding to nearest, ties to even, by definition. Floats between two adjacent bf16 values are evenly
// spaced, so the low bits determine the closer one; the neighbor beyond the largest value is infinity. No
// float arithmetic is used, since earlier tests may have enabled flushing of denormals.
uint16_t nearest(float value) {
  const auto word = std::bit_cast<uint32_t>(value);
  const auto toward_zero = static_cast<uint16_t>(word >> 16);
  if ((word & 0x7fffffffu) > 0x7f800000u) return toward_zero | 0x40;
  const uint32_t beyond = word & 0xffffu;
  const bool is_odd = (toward_zero & 1) != 0;
  return static_cast<uint16_t>(beyond > 0x8000u || (beyond == 0x8000u && is_odd) ? toward_zero + 1
                                                                                 : toward_zero);
}

std::vector<float> values() {
  std::vector<float> values{0.0f,
                            -0.0f,
                            1.0f,
                            std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::lowest(),
                            std::numeric_limits<float>::denorm_min(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()};
  // Ties and their neighbors, and NaN patterns that rounding would turn into other numbers.
  for (const uint32_t word : {0x3f808000u, 0x3f818000u, 0x3f807fffu, 0x3f808001u, 0x7f7f8000u, 0x7f7f7fffu,
                              0x00008000u, 0x00018000u, 0x80008001u, 0x7f800001u, 0x7fffffffu, 0xffffffffu})
    values.push_back(std::bit_cast<float>(word));
  std::mt19937 engine(7);
  while (values.size() < 4099) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(engine())));
  return values;
}

TEST(Convert, RoundsToTheNearestBf16) {
  const std::vector<float> from = values();
  fixtures::on_every_target([&](int64_t) {
    // Every value appears in every vector lane and after the last whole vector.
    for (size_t first = 0; first < 64; ++first) {
      std::vector<BF16> to(from.size() - first);
      convert(to.data(), DType::kBF16, from.data() + first, DType::kF32, std::ssize(to));
      for (size_t i = 0; i < to.size(); ++i)
        ASSERT_EQ(to[i].bits, nearest(from[first + i]))
            << "of " << std::hexfloat << from[first + i] << " at " << i;
    }
  });
}

TEST(Convert, WidensEveryBf16) {
  std::vector<BF16> from(1 << 16);
  for (size_t i = 0; i < from.size(); ++i) from[i].bits = static_cast<uint16_t>(i);
  fixtures::on_every_target([&](int64_t) {
    std::vector<uint32_t> to(from.size());
    convert(to.data(), DType::kF32, from.data(), DType::kBF16, std::ssize(to));
    for (size_t i = 0; i < to.size(); ++i) ASSERT_EQ(to[i], i << 16);
  });
}

TEST(Convert, WidensEveryF16AndRoundsItBack) {
  std::vector<uint16_t> from(1 << 16);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint16_t>(i);
  fixtures::on_every_target([&](int64_t) {
    std::vector<float> wide(from.size());
    convert(wide.data(), DType::kF32, from.data(), DType::kF16, std::ssize(wide));
    std::vector<uint16_t> back(from.size());
    convert(back.data(), DType::kF16, wide.data(), DType::kF32, std::ssize(wide));
    for (size_t i = 0; i < from.size(); ++i) {
      const auto code = static_cast<uint16_t>(i);
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(f16_to_float(code))) << i;
      const bool nan = (code & 0x7fff) > 0x7c00;
      ASSERT_EQ(back[i], nan ? (code & 0x8000) | 0x7e00 : code) << i;
    }
  });
}

TEST(Convert, RoundsToF16AsOneByOne) {
  std::vector<float> from = values();
  // Ties of normal and subnormal numbers with their neighbors, and the border to infinity.
  for (const uint32_t word : {0x3f801000u, 0x3f803000u, 0x3f800fffu, 0x3f801001u, 0x33000000u, 0x33000001u,
                              0x33c00000u, 0x387fe000u, 0x387ff000u, 0x38800000u, 0x477fefffu, 0x477ff000u}) {
    from.push_back(std::bit_cast<float>(word));
    from.push_back(-std::bit_cast<float>(word));
  }
  for (size_t i = 0; i < 4096; ++i) from.push_back(static_cast<float>(i) * 0x1.8p-26f);
  fixtures::on_every_target([&](int64_t) {
    for (size_t first = 0; first < 20; ++first) {
      std::vector<uint16_t> to(from.size() - first);
      convert(to.data(), DType::kF16, from.data() + first, DType::kF32, std::ssize(to));
      for (size_t i = 0; i < to.size(); ++i)
        ASSERT_EQ(to[i], float_to_f16(from[first + i]))
            << "of " << std::hexfloat << from[first + i] << " at " << i;
    }
  });
}

TEST(Convert, WritesNothingAfterTheLastElement) {
  const std::vector<float> from(80, 3.0f);
  fixtures::on_every_target([&](int64_t) {
    for (int64_t n = 0; n <= 70; ++n) {
      std::vector<BF16> halves(80, BF16(-7.0f));
      std::vector<float> floats(80, -7.0f);
      convert(halves.data(), DType::kBF16, from.data(), DType::kF32, n);
      convert(floats.data(), DType::kF32, halves.data(), DType::kBF16, n);
      for (int64_t i = 0; i < 80; ++i) {
        const float wanted = i < n ? 3.0f : -7.0f;
        ASSERT_EQ(static_cast<float>(halves[static_cast<size_t>(i)]), wanted) << n << " elements, at " << i;
        ASSERT_EQ(floats[static_cast<size_t>(i)], wanted) << n << " elements, at " << i;
      }
    }
  });
}

// Safetensors data follow a header of any size, so they may be unaligned.
TEST(Convert, ReadsAndWritesAtAnyAlignment) {
  constexpr int64_t kCount = 37;
  std::vector<float> from(kCount);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i) - 5.5f;
  std::vector<std::byte> packed(kCount * sizeof(float) + 1), rounded(kCount * sizeof(BF16) + 1);
  std::memcpy(packed.data() + 1, from.data(), kCount * sizeof(float));
  fixtures::on_every_target([&](int64_t) {
    convert(rounded.data() + 1, DType::kBF16, packed.data() + 1, DType::kF32, kCount);
    std::vector<float> back(kCount);
    convert(back.data(), DType::kF32, rounded.data() + 1, DType::kBF16, kCount);
    EXPECT_EQ(back, from);  // representable, so nothing is lost
  });
}

}  // namespace
}  // namespace strata
