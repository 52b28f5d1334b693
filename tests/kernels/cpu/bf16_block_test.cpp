#include "kernels/cpu/bf16_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/bf16_emulator.h"
#include "kernels/cpu/listed_rows.h"

#define STRATA_BF16_INCLUDE "kernels/cpu/bf16_block_testing-inl.h"
#include "kernels/cpu/for_each_bf16_target.h"

namespace strata::cpu {
namespace {

using detail::OperandView;
using testing::EmulatedBf16Pairs;

float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}
float value_of(BF16 value) {
  return flushed(static_cast<float>(value));
}
// As the processor's manual defines it.
float dot_of(float sum, const BF16* a, const BF16* b) {
  for (const int i : {1, 0}) sum = flushed(std::fma(value_of(a[i]), value_of(b[i]), flushed(sum)));
  return sum;
}

// The model of the instruction, and the instruction itself if this processor can execute or emulate it.
std::vector<decltype(&bf16_model::dot_of_pairs)> dots() {
  std::vector<decltype(&bf16_model::dot_of_pairs)> all{bf16_model::dot_of_pairs};
#if STRATA_HAS_BF16_NATIVE
  if (EmulatedBf16Pairs::is_possible()) all.push_back(bf16_native::dot_of_pairs);
#endif
  return all;
}
struct Products {
  decltype(&bf16_model::MultiplyPacked) packed;
  decltype(&bf16_model::MultiplyListed) listed;
  decltype(&bf16_model::MultiplyScaled) scaled;
};
std::vector<Products> products() {
  std::vector<Products> all{
      {bf16_model::MultiplyPacked, bf16_model::MultiplyListed, bf16_model::MultiplyScaled},
      {detail::multiply_pairs, detail::multiply_pairs_listed, detail::multiply_pairs_scaled}};
#if STRATA_HAS_BF16_NATIVE
  if (EmulatedBf16Pairs::is_possible())
    all.push_back({bf16_native::MultiplyPacked, bf16_native::MultiplyListed, bf16_native::MultiplyScaled});
#endif
  return all;
}

TEST(Bf16Dot, RoundsLikeTheManual) {
  const EmulatedBf16Pairs emulated;
  std::mt19937 engine(3);
  std::uniform_int_distribution<int> exponent(-40, 40);
  std::uniform_real_distribution<float> mantissa(-2, 2);
  const auto any = [&] { return std::ldexp(mantissa(engine), exponent(engine)); };
  for (int round = 0; round < 20000; ++round) {
    BF16 a[32], b[32];
    float sums[16], wanted[16];
    for (int i = 0; i < 32; ++i) a[i] = BF16(any()), b[i] = BF16(any());
    // Sums of about the same magnitude as the terms that are added, so that all bits matter.
    for (int i = 0; i < 16; ++i)
      sums[i] = static_cast<float>(a[2 * i]) * static_cast<float>(b[2 * i]) * mantissa(engine);
    if (round % 100 == 0) {
      a[4].bits = 0x0012, b[6].bits = 0x807f;  // denormal: zero
      a[8] = BF16(0.0f), b[8] = BF16(-1.0f), sums[4] = 0;
    }
    for (int i = 0; i < 16; ++i) wanted[i] = dot_of(sums[i], a + 2 * i, b + 2 * i);
    for (const auto dot : dots()) {
      float got[16];
      std::copy_n(sums, 16, got);
      dot(got, a, b);
      for (int i = 0; i < 16; ++i)
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(wanted[i])) << "lane " << i;
    }
  }
}

struct Matrix {
  int64_t rows, cols;
  std::vector<BF16> values;
  Matrix(int64_t of_rows, int64_t of_cols, unsigned seed) : rows(of_rows), cols(of_cols) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < rows * cols; ++i) values.emplace_back(normal(engine));
  }
  BF16 at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * cols + c)]; }
};

// The expected contents of a panel.
std::vector<uint16_t> packed(int64_t panel, int64_t count, int64_t depth, const auto& value) {
  std::vector<uint16_t> all;
  for (int64_t first = 0; first < count; first += panel)
    for (int64_t p = 0; p < depth; p += 2)
      for (int64_t i = first; i < first + panel; ++i)
        for (const int64_t deep : {p, p + 1})
          all.push_back(i < count && deep < depth ? value(i, deep).bits : uint16_t{0});
  return all;
}

TEST(Bf16Block, PacksPairs) {
  for (const int64_t panel : {detail::kPairPanels.mr, detail::kPairPanels.nr}) {
    for (const int64_t count : {1, 3, 6, 7, 11, 32, 37, 64, 150}) {
      for (const int64_t depth : {0, 1, 2, 7, 8, 17, 40, 513, 600}) {
        SCOPED_TRACE(::testing::Message() << "panel " << panel << " count " << count << " depth " << depth);
        const int64_t begin = 3, deep = 2;
        const Matrix along(begin + count, deep + depth, 1), across(deep + depth, begin + count, 2);
        std::vector<float> floats(along.values.size());
        std::mt19937 engine(5);
        std::normal_distribution<float> normal;
        std::generate(floats.begin(), floats.end(), [&] { return normal(engine); });
        std::vector<int32_t> list;
        for (int64_t p = 0; p < depth; ++p)
          list.push_back(static_cast<int32_t>((p * 7 + 1) % (deep + depth)));
        const auto check = [&](const auto& pack, const auto& value) {
          const std::vector<uint16_t> wanted = packed(panel, count, depth, value);
          std::vector<BF16> got(wanted.size() + 8, std::bit_cast<BF16>(uint16_t{0xffff}));
          pack(got.data());
          for (size_t i = 0; i < got.size(); ++i)
            ASSERT_EQ(got[i].bits, i < wanted.size() ? wanted[i] : 0xffff) << "value " << i;
        };
        const OperandView by_rows{.data = along.values.data(), .dtype = DType::kBF16, .stride = along.cols};
        const OperandView by_depth{
            .data = across.values.data(), .dtype = DType::kBF16, .stride = across.cols, .depth_major = true};
        const OperandView of_floats{.data = floats.data(), .stride = along.cols};
        OperandView floats_by_depth{.data = floats.data(), .stride = begin + count, .depth_major = true};
        const auto pack_view = [&](const OperandView& view) {
          return [&, view](BF16* to) { detail::pack_pairs(to, panel, view, begin, count, deep, depth); };
        };
        check(pack_view(by_rows), [&](int64_t i, int64_t p) { return along.at(begin + i, deep + p); });
        check(pack_view(by_depth), [&](int64_t i, int64_t p) { return across.at(deep + p, begin + i); });
        check(pack_view(of_floats), [&](int64_t i, int64_t p) {
          return BF16(floats[static_cast<size_t>((begin + i) * along.cols + deep + p)]);
        });
        check(pack_view(floats_by_depth), [&](int64_t i, int64_t p) {
          return BF16(floats[static_cast<size_t>((deep + p) * (begin + count) + begin + i)]);
        });
        check(
            [&](BF16* to) {
              detail::pack_pairs_listed(to, panel, by_depth, list.data(), begin, count, depth);
            },
            [&](int64_t i, int64_t p) { return across.at(list[static_cast<size_t>(p)], begin + i); });
      }
    }
  }
}

// The expected result sums each element separately, pair by pair.
TEST(Bf16Block, MultipliesPairByPair) {
  const EmulatedBf16Pairs emulated;
  constexpr int64_t mr = detail::kPairPanels.mr, nr = detail::kPairPanels.nr;
  for (const int64_t rows : {1, 5, 6, 13}) {
    for (const int64_t cols : {1, 63, 64, 130}) {
      for (const int64_t depth : {0, 2, 6, 64}) {
        const Matrix a(rows + 5, depth, 1), b(depth, cols, 2);
        std::vector<float> bias;
        for (int64_t j = 0; j < cols; ++j) bias.push_back(static_cast<float>(j % 7) - 2.5f);
        const int64_t values = detail::panel_values(depth, nr);
        std::vector<BF16> panels(static_cast<size_t>((cols + nr - 1) / nr * values));
        detail::pack_pairs(
            panels.data(), nr,
            {.data = b.values.data(), .dtype = DType::kBF16, .stride = cols, .depth_major = true}, 0, cols, 0,
            depth);
        std::vector<BF16> a_panels(
            static_cast<size_t>((rows + mr - 1) / mr * detail::panel_values(depth, mr)));
        detail::pack_pairs(a_panels.data(), mr,
                           {.data = a.values.data(), .dtype = DType::kBF16, .stride = depth}, 0, rows, 0,
                           depth);
        std::vector<int32_t> a_rows, c_rows;
        for (int64_t r = 0; r < rows; ++r) {
          a_rows.push_back(static_cast<int32_t>((r * 3 + 2) % (rows + 5)));
          c_rows.push_back(static_cast<int32_t>(rows - 1 - r));
        }
        // Sums scaled by row and by column.
        std::vector<float> of_rows, of_cols;
        for (int64_t r = 0; r < rows; ++r) of_rows.push_back(1.1f + static_cast<float>(r));
        for (int64_t j = 0; j < cols + nr; ++j) of_cols.push_back(0.7f - static_cast<float>(j % 5));
        for (const bool listed : {false, true}) {
          for (const int mode : {0, 1, 3}) {  // sets, adds, sets with a bias
            const int64_t stride = cols + 3;
            std::vector<float> c(static_cast<size_t>(rows * stride), 0.25f), wanted = c;
            for (int64_t r = 0; r < rows; ++r) {
              for (int64_t j = 0; j < cols; ++j) {
                float& to =
                    wanted[static_cast<size_t>((listed ? c_rows[static_cast<size_t>(r)] : r) * stride + j)];
                float sum = 0;
                for (int64_t p = 0; p < depth; p += 2) {
                  const BF16 left[2] = {a.at(r, p), a.at(r, p + 1)}, right[2] = {b.at(p, j), b.at(p + 1, j)};
                  sum = dot_of(sum, left, right);
                }
                const float factor = of_rows[static_cast<size_t>(r)] * of_cols[static_cast<size_t>(j)];
                const float base = mode == 1 ? to : mode == 3 ? bias[static_cast<size_t>(j)] : 0.0f;
                to = std::fma(sum, factor, base);
              }
            }
            for (const Products& product : products()) {
              std::vector<float> got = c;
              product.scaled({.data = got.data(),
                              .stride = stride,
                              .accumulate = mode == 1,
                              .bias = mode == 3 ? bias.data() : nullptr},
                             listed ? c_rows.data() : nullptr, {of_rows.data(), of_cols.data()},
                             a_panels.data(), detail::panel_values(depth, mr), panels.data(), values, rows,
                             cols, depth, nullptr);
              EXPECT_EQ(got, wanted) << rows << " x " << cols << " x " << depth << " mode " << mode;
            }
          }
        }
        for (const bool listed : {false, true}) {
          for (const int mode : {0, 1, 2, 3}) {  // sets, adds, continues, sets with a bias
            SCOPED_TRACE(::testing::Message() << rows << " x " << cols << " x " << depth << " listed "
                                              << listed << " mode " << mode);
            const int64_t stride = cols + 3;
            std::vector<float> c(static_cast<size_t>(rows * stride), 0.25f), wanted = c;
            for (int64_t r = 0; r < rows; ++r) {
              for (int64_t j = 0; j < cols; ++j) {
                const int64_t from = listed ? a_rows[static_cast<size_t>(r)] : r;
                float& to =
                    wanted[static_cast<size_t>((listed ? c_rows[static_cast<size_t>(r)] : r) * stride + j)];
                float sum = mode == 2 ? to : 0.0f;
                for (int64_t p = 0; p < depth; p += 2) {
                  const BF16 left[2] = {a.at(from, p), a.at(from, p + 1)},
                             right[2] = {b.at(p, j), b.at(p + 1, j)};
                  sum = dot_of(sum, left, right);
                }
                to = mode == 1 ? to + sum : mode == 3 ? sum + bias[static_cast<size_t>(j)] : sum;
              }
            }
            for (const Products& product : products()) {
              std::vector<float> got = c;
              const detail::BlockOutput out{.data = got.data(),
                                            .stride = stride,
                                            .accumulate = mode == 1 || mode == 2,
                                            .bias = mode == 3 ? bias.data() : nullptr,
                                            .continues = mode == 2};
              product.listed(out, listed ? c_rows.data() : nullptr, a.values.data(), depth,
                             listed ? a_rows.data() : nullptr, panels.data(), values, rows, cols, depth,
                             {.from = reinterpret_cast<const std::byte*>(c.data()),
                              .rows = rows,
                              .bytes = cols * 4,
                              .stride = stride * 4});
              EXPECT_EQ(got, wanted);
              if (listed) continue;
              got = c;
              product.packed(out, a_panels.data(), detail::panel_values(depth, mr), panels.data(), values,
                             rows, cols, depth, panels.data());
              EXPECT_EQ(got, wanted);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata::cpu
