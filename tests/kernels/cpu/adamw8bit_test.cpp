#include "kernels/cpu/adamw8bit.h"

#include "base/file.h"
#include "base/json.h"
#include "kernels/cpu/array_testing.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_same_bits;

nlohmann::json golden() {
  return parse_json<nlohmann::json>(read_file(STRATA_TEST_DATA "/optim/quantization.json"));
}

std::vector<uint8_t> bytes_of(const std::string& hexadecimal) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < hexadecimal.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(hexadecimal.substr(i, 2), nullptr, 16)));
  return bytes;
}

// Same numbers as in make_optim_golden.py.
float number(uint64_t stream, uint64_t i) {
  uint64_t x = (i + stream * 1000003 + 1) * 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 32;
  return static_cast<float>(static_cast<double>(x >> 40) / 8388608.0 - 1.0);
}

TEST(DynamicMap, EqualsBitsandbytes) {
  const auto json = golden();
  for (const auto& [name, map] :
       {std::pair{"signed", &signed_dynamic_map()}, std::pair{"unsigned", &unsigned_dynamic_map()}}) {
    const auto wanted = json[name]["map"].get<std::vector<double>>();
    ASSERT_EQ(wanted.size(), 256u);
    for (size_t i = 0; i < 256; ++i) EXPECT_EQ(double{map->values[i]}, wanted[i]) << name << " " << i;
  }
}

TEST(DynamicMap, QuantizesBlocksLikeBitsandbytes) {
  const auto json = golden();
  for (const bool has_sign : {true, false}) {
    const auto& one = json[has_sign ? "signed" : "unsigned"];
    std::vector<float> x(4096), scales(16);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = std::ldexp(number(7, i), -3 * static_cast<int>(i % 9));
      if (i >= 1024 && i < 1280) x[i] = 0;
      if (!has_sign) x[i] = std::abs(x[i]);
    }
    std::vector<uint8_t> codes(x.size());
    quantize_blocks(has_sign ? signed_dynamic_map() : unsigned_dynamic_map(), 4096, x.data(), codes.data(),
                    scales.data());
    const auto wanted_codes = bytes_of(one["codes"]);
    for (size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(codes[i], wanted_codes[i]) << i << ": " << x[i];
    const auto wanted = one["scales"].get<std::vector<double>>();
    for (size_t i = 0; i < scales.size(); ++i) EXPECT_EQ(double{scales[i]}, wanted[i]) << i;
  }
}

// Every border between two codes, and the floats next to it.
TEST(DynamicMap, RoundsAtEveryBorder) {
  for (const DynamicMap* map : {&signed_dynamic_map(), &unsigned_dynamic_map()}) {
    std::vector<float> x;
    for (size_t i = 0; i + 1 < 256; ++i) {
      const float border = (map->values[i] + map->values[i + 1]) / 2;
      for (const float near : {std::nextafter(border, -2.0f), border, std::nextafter(border, 2.0f)}) {
        // A separate block with scale one.
        x.push_back(near);
        x.push_back(1.0f);
        x.resize((x.size() + 255) / 256 * 256, 0.0f);
      }
    }
    const auto n = std::ssize(x);
    std::vector<uint8_t> codes(x.size());
    std::vector<float> scales(x.size() / 256);
    quantize_blocks(*map, n, x.data(), codes.data(), scales.data());
    for (size_t i = 0; i < x.size() / 256; ++i)
      EXPECT_EQ(codes[i * 256], i / 3 + (i % 3 == 2)) << "border " << i / 3 << ", place " << i % 3;
  }
}

UpdateScalars scalars_at(int step) {
  return {.lr = 1e-2f, .grad_scale = 0.5f, .skip = 0, .update = step};
}
AdamWConstants with_scale(float lr_scale) {
  return {.weight_decay = 0.1f, .lr_scale = lr_scale};
}

struct State {
  explicit State(int64_t n)
      : m(static_cast<size_t>(n)),
        v(static_cast<size_t>(n)),
        m_scale(static_cast<size_t>(quantization_blocks(n))),
        v_scale(m_scale.size()) {}
  Moments8Bit moments() { return {m.data(), m_scale.data(), v.data(), v_scale.data()}; }
  double m_at(size_t i) const { return double{signed_dynamic_map().values[m[i]]} * double{m_scale[i / 256]}; }
  double v_at(size_t i) const {
    return double{unsigned_dynamic_map().values[v[i]]} * double{v_scale[i / 256]};
  }
  std::vector<uint8_t> m, v;
  std::vector<float> m_scale, v_scale;
};

// Each step starts from the state that the kernel left: the parameter matches to fp32 accuracy, the moments
// to half the distance between two values of their maps.
TEST(AdamW8Bit, MatchesDoubleFromItsOwnState) {
  for (const int64_t n : {0, 1, 255, 256, 257, 5000}) {
    Array p = Array::random(DType::kF32, n, 1);
    State state(n);
    for (int step = 1; step <= 4; ++step) {
      const Array grad = Array::random(DType::kF32, n, 10u + static_cast<unsigned>(step), 0.3);
      const UpdateScalars scalars = scalars_at(step);
      std::vector<double> want_p, want_m, want_v;
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(i);
        const double g = grad[i] * 0.5, rate = 1e-2 * 2;
        want_m.push_back(0.9 * state.m_at(at) + 0.1 * g);
        want_v.push_back(0.95 * state.v_at(at) + 0.05 * g * g);
        const double denominator = std::sqrt(want_v[at]) / std::sqrt(1 - std::pow(0.95, step)) + 1e-8;
        want_p.push_back(p[i] * (1 - rate * 0.1) -
                         rate / (1 - std::pow(0.9, step)) * want_m[at] / denominator);
      }
      adamw8bit_update(n, p.f32(), state.moments(), grad.f32(), &scalars, with_scale(2));
      testing::expect_near(p, want_p, 2e-6);
      for (size_t i = 0; i < want_m.size(); ++i) {
        const double m_tolerance = 0.0071 * double{state.m_scale[i / 256]};
        const double v_tolerance = 0.0036 * double{state.v_scale[i / 256]};
        EXPECT_NEAR(state.m_at(i), want_m[i], m_tolerance) << n << " " << i;
        EXPECT_NEAR(state.v_at(i), want_v[i], v_tolerance) << n << " " << i;
      }
    }
  }
}

TEST(AdamW8Bit, SameBitsForAnyNumberOfThreadsAndNothingWhenSkipped) {
  const int64_t n = 100001;
  const Array start = Array::random(DType::kF32, n, 1), grad = Array::random(DType::kF32, n, 2);
  expect_same_bits([&] {
    Array p = start;
    State state(n);
    for (int step = 1; step <= 2; ++step) {
      const UpdateScalars scalars = scalars_at(step);
      adamw8bit_update(n, p.f32(), state.moments(), grad.f32(), &scalars, with_scale(1));
    }
    auto bytes = p.bytes();
    for (const auto& codes : {state.m, state.v}) {
      for (const uint8_t code : codes) bytes.push_back(std::byte{code});
    }
    return bytes;
  });
  Array p = start;
  State state(n);
  state.m_scale[3] = 0.5f;
  const State before = state;
  UpdateScalars scalars = scalars_at(1);
  scalars.skip = 1;
  adamw8bit_update(n, p.f32(), state.moments(), grad.f32(), &scalars, with_scale(1));
  EXPECT_TRUE(p.bytes() == start.bytes());
  EXPECT_TRUE(state.m == before.m && state.v == before.v && state.m_scale == before.m_scale);
}

// Ranks that hold rows and columns of a tensor, split anywhere, compute the same bits as one rank.
TEST(AdamW8Bit, SameBitsForAnyNumberOfRanks) {
  struct Cut {
    int64_t rows, columns, of_rows, of_columns;  // ranks along each
  };
  for (const Cut& cut : {Cut{7, 96, 1, 2}, Cut{7, 96, 7, 1}, Cut{6, 50, 3, 5}, Cut{4, 1024, 2, 4},
                         Cut{1000, 1, 4, 1}, Cut{5, 300, 5, 3}}) {
    SCOPED_TRACE(::testing::PrintToString(std::vector{cut.rows, cut.columns, cut.of_rows, cut.of_columns}));
    const int64_t n = cut.rows * cut.columns, blocks = quantization_blocks(n);
    const Array start = Array::random(DType::kF32, n, 1);
    Array whole = start;
    State of_whole(n);
    struct Rank {
      HeldRun run;
      std::vector<int64_t> places;  // in the whole tensor
      std::vector<float> p, g;
      std::vector<uint8_t> m, v;
    };
    std::vector<Rank> ranks;
    const int64_t rows = cut.rows / cut.of_rows, width = cut.columns / cut.of_columns;
    for (int64_t row = 0; row < cut.rows; row += rows) {
      for (int64_t column = 0; column < cut.columns; column += width) {
        Rank& rank = ranks.emplace_back();
        rank.run = {cut.columns, column, width, row, rows, 0};
        for (int64_t i = 0; i < rows * width; ++i) {
          rank.places.push_back((row + i / width) * cut.columns + column + i % width);
          rank.p.push_back(static_cast<float>(start[rank.places.back()]));
        }
        rank.g.resize(rank.p.size());
        rank.m.resize(rank.p.size());
        rank.v.resize(rank.p.size());
      }
    }
    std::vector<float> m_scale(static_cast<size_t>(blocks)), v_scale(m_scale.size());
    for (int step = 1; step <= 3; ++step) {
      const Array grad = Array::random(DType::kF32, n, 10u + static_cast<unsigned>(step), 0.3);
      const UpdateScalars scalars = scalars_at(step);
      adamw8bit_update(n, whole.f32(), of_whole.moments(), grad.f32(), &scalars, with_scale(2));
      std::vector<float> m_largest(m_scale.size()), v_largest(m_scale.size());
      for (Rank& rank : ranks) {
        for (size_t i = 0; i < rank.g.size(); ++i) rank.g[i] = static_cast<float>(grad[rank.places[i]]);
        adamw8bit_largest(rank.run, {rank.m.data(), m_scale.data(), rank.v.data(), v_scale.data()},
                          rank.g.data(), &scalars, with_scale(2), m_largest.data(), v_largest.data());
      }
      for (Rank& rank : ranks)
        adamw8bit_update_run(rank.run, rank.p.data(),
                             {rank.m.data(), m_scale.data(), rank.v.data(), v_scale.data()}, rank.g.data(),
                             &scalars, with_scale(2), m_largest.data(), v_largest.data());
      m_scale = m_largest;
      v_scale = v_largest;
      EXPECT_EQ(m_scale, of_whole.m_scale);
      EXPECT_EQ(v_scale, of_whole.v_scale);
      for (const Rank& rank : ranks) {
        for (size_t i = 0; i < rank.p.size(); ++i) {
          const auto place = static_cast<size_t>(rank.places[i]);
          ASSERT_EQ(rank.p[i], whole.f32()[place]) << step << " " << place;
          ASSERT_EQ(rank.m[i], of_whole.m[place]) << step << " " << place;
          ASSERT_EQ(rank.v[i], of_whole.v[place]) << step << " " << place;
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata::cpu
