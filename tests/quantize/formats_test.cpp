#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "fixtures/every_target.h"
#include "quantize/golden.h"
#include "quantize/subnormals.h"

namespace strata::quantize {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<Format> all_formats() {
  std::vector<Format> all;
  for (int f = 0; f < kFormats; ++f) all.push_back(static_cast<Format>(f));
  return all;
}
std::vector<Format> stochastic_formats() {
  std::vector<Format> some;
  for (const Format format : all_formats()) {
    if (format != Format::kE8M0 && format != Format::kF16) some.push_back(format);
  }
  return some;
}

// Every upper half of a float with the lower halves that the golden file lists.
std::vector<float> chosen_floats(const nlohmann::json& file) {
  std::vector<float> floats;
  floats.reserve(1 << 20);
  for (const auto& lower : file["lower"]) {
    for (uint32_t upper = 0; upper < 1u << 16; ++upper)
      floats.push_back(std::bit_cast<float>(upper << 16 | lower.get<uint32_t>()));
  }
  return floats;
}

std::vector<uint8_t> encoded(Format format, const std::vector<float>& floats) {
  std::vector<uint8_t> codes(static_cast<size_t>(code_bytes(format, std::ssize(floats))));
  encode(format, floats.data(), std::ssize(floats), codes.data());
  return codes;
}
std::vector<uint8_t> encoded(Format format, const std::vector<float>& floats, const StochasticBits& bits,
                             int64_t first) {
  std::vector<uint8_t> codes(static_cast<size_t>(code_bytes(format, std::ssize(floats))));
  encode(format, floats.data(), std::ssize(floats), codes.data(), bits, first);
  return codes;
}
uint32_t code_at(Format format, const std::vector<uint8_t>& codes, size_t i) {
  if (format == Format::kE2M1) return codes[i / 2] >> (i % 2 * 4) & 15;
  if (format == Format::kF16) return codes[2 * i] | static_cast<uint32_t>(codes[2 * i + 1]) << 8;
  return codes[i];
}

TEST(Formats, EveryCodeHasTheValueThatMlDtypesGives) {
  const auto file = golden("formats.json");
  for (const Format format : all_formats()) {
    if (format == Format::kF16) continue;  // f16_to_float has a test elsewhere
    const FormatSpec spec = spec_of(format);
    const auto& values = file["formats"][std::string(spec.name)]["values"];
    ASSERT_EQ(values.size(), spec.codes()) << spec.name;
    std::vector<uint8_t> codes;
    for (uint32_t code = 0; code < spec.codes(); ++code) codes.push_back(static_cast<uint8_t>(code));
    std::vector<uint8_t> stored = codes;
    if (format == Format::kE2M1) {
      stored.clear();
      for (size_t i = 0; i < codes.size(); i += 2)
        stored.push_back(static_cast<uint8_t>(codes[i] | codes[i + 1] << 4));
    }
    std::vector<float> decoded(codes.size());
    decode(format, stored.data(), std::ssize(codes), decoded.data());
    for (uint32_t code = 0; code < spec.codes(); ++code) {
      const auto wanted = std::bit_cast<float>(values[code].get<uint32_t>());
      if (std::isnan(wanted)) {
        EXPECT_TRUE(std::isnan(decode(format, code)) && std::isnan(decoded[code]))
            << spec.name << ' ' << code;
        continue;
      }
      EXPECT_EQ(std::bit_cast<uint32_t>(decode(format, code)), values[code].get<uint32_t>())
          << spec.name << ' ' << code;
      EXPECT_EQ(std::bit_cast<uint32_t>(decoded[code]), values[code].get<uint32_t>())
          << spec.name << ' ' << code;
    }
  }
}

bool same_number(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Every code in runs of any length, without factors and with those of blocks, of which the first may have begun before.
TEST(Formats, VectorsDecodeWithTheFactorsOfBlocks) {
  const std::vector<float> factors{1, 0.25f, 1.5f, -8, 1, 0x1p60f, 3, 0.5f, 2, 1, 5, 7, 9, 11, 13, 15,
                                   2, 4,     6,    8,  1, 3,       5, 7,    9, 2, 4, 6, 8, 1,  3,  5};
  for (const Format format : stochastic_formats()) {
    const uint32_t all = spec_of(format).codes();
    for (const int64_t n : {0, 1, 7, 16, 33, 64, 255, 600, 1000}) {
      std::vector<uint8_t> codes, stored;
      for (int64_t i = 0; i < n; ++i)
        codes.push_back(static_cast<uint8_t>(static_cast<uint32_t>(i * 37 + n) % all));
      stored = codes;
      if (format == Format::kE2M1) {
        stored.assign(static_cast<size_t>(n + 1) / 2, 0);
        for (size_t i = 0; i < codes.size(); ++i)
          stored[i / 2] = static_cast<uint8_t>(stored[i / 2] | codes[i] << (i % 2 * 4));
      }
      for (const BlockFactors& blocks :
           {BlockFactors(), BlockFactors{factors.data(), 32, 0}, BlockFactors{factors.data(), 128, 100},
            BlockFactors{factors.data(), 48, 5}}) {
        const auto wanted = [&](size_t i) {
          const float value = decode(format, codes[i]);
          if (blocks.factors == nullptr) return value;
          return value * blocks.factors[(static_cast<int64_t>(i) + blocks.first) / blocks.width];
        };
        fixtures::on_every_target([&](int64_t) {
          std::vector<float> floats(codes.size() + 3, 77.0f);
          std::vector<BF16> halves(codes.size() + 3, BF16(77.0f));
          decode(format, stored.data(), n, blocks, floats.data());
          decode(format, stored.data(), n, blocks, halves.data());
          for (size_t i = 0; i < codes.size(); ++i) {
            ASSERT_TRUE(same_number(floats[i], wanted(i))) << spec_of(format).name << ' ' << i;
            ASSERT_TRUE(same_number(static_cast<float>(halves[i]), wanted(i)))
                << spec_of(format).name << ' ' << i;
          }
          for (size_t i = codes.size(); i < floats.size(); ++i)
            ASSERT_TRUE(floats[i] == 77.0f && halves[i].bits == BF16(77.0f).bits);
        });
      }
    }
  }
}

TEST(Formats, ChosenFloatsGetTheCodesThatMlDtypesGives) {
  const auto file = golden("formats.json");
  const std::vector<float> floats = chosen_floats(file);
  ASSERT_EQ(floats.size(), size_t{1} << 20);
  for (const Format format : all_formats()) {
    const std::string name(spec_of(format).name);
    const auto wanted = file["formats"][name]["chosen"].get<std::string>();
    fixtures::on_every_target([&](int64_t) {
      const std::vector<uint8_t> codes = encoded(format, floats);
      EXPECT_EQ(digest(codes.data(), std::ssize(codes)), wanted) << name;
    });
    // The definition, one by one. f16's NaN keeps its sign in vectors, as convert() always did.
    const std::vector<uint8_t> codes = encoded(format, floats);
    size_t differ = 0;
    for (size_t i = 0; i < floats.size(); i += format == Format::kE4M3 ? 1 : 7) {
      if (format == Format::kF16 && std::isnan(floats[i])) continue;
      differ += encode(format, floats[i]) != code_at(format, codes, i) ? 1 : 0;
    }
    EXPECT_EQ(differ, 0u) << name;
  }
}

TEST(Formats, StochasticCodesAreThoseOfNumPy) {
  const auto file = golden("formats.json");
  const std::vector<float> floats = chosen_floats(file);
  const StochasticBits bits = bits_of_golden(file);
  const auto first = file["first"].get<int64_t>();
  int compared = 0;
  for (const Format format : stochastic_formats()) {
    const auto& entry = file["formats"][std::string(spec_of(format).name)];
    const std::vector<uint8_t> best = encoded(format, floats, bits, first);
    fixtures::on_every_target([&](int64_t) { EXPECT_EQ(encoded(format, floats, bits, first), best); });
    for (size_t i = 0; i < floats.size(); i += 61) {
      const uint32_t word = random_word(bits, first + static_cast<int64_t>(i));
      ASSERT_EQ(encode(format, floats[i], word), code_at(format, best, i))
          << spec_of(format).name << ' ' << floats[i];
    }
    if (!entry.contains("stochastic")) continue;
    EXPECT_EQ(digest(best.data(), std::ssize(best)), entry["stochastic"].get<std::string>())
        << spec_of(format).name;
    ++compared;
  }
  EXPECT_EQ(compared, 3);
}

// Values in [1, 1.125) of e4m3, whose discarded part and the element's random bits add up to one quantum exactly, and the
// greatest floats below them.
TEST(Formats, StochasticRoundingTurnsUpAtExactlyOneQuantum) {
  const StochasticBits bits{{11, 4}, 2};
  std::vector<float> at, below;
  for (int64_t element = 0; element < 4096; ++element) {
    const uint32_t random =
        random_word(bits, element) >> 8 & ~15u;  // floats in this range have 20 bits to discard
    at.push_back(1.0f + static_cast<float>(0x1000000u - random) * 0x1p-27f);
    below.push_back(std::nextafter(at.back(), 0.0f));
  }
  const uint32_t one = encode(Format::kE4M3, 1.0f);
  int exact = 0;
  fixtures::on_every_target([&](int64_t) {
    const std::vector<uint8_t> codes_at = encoded(Format::kE4M3, at, bits, 0);
    const std::vector<uint8_t> codes_below = encoded(Format::kE4M3, below, bits, 0);
    for (size_t i = 0; i < at.size(); ++i) {
      const uint32_t word = random_word(bits, static_cast<int64_t>(i));
      ASSERT_EQ(encode(Format::kE4M3, at[i], word), one + 1) << i;
      ASSERT_EQ(codes_at[i], one + 1) << i;
      if ((word >> 8 & 15u) != 0) continue;
      ++exact;
      ASSERT_EQ(encode(Format::kE4M3, below[i], word), one) << i;
      ASSERT_EQ(codes_below[i], one) << i;
    }
  });
  EXPECT_GT(exact, 100);
}

TEST(Formats, StochasticRoundingHasTheMeanOfTheValue) {
  constexpr int64_t kCounters = 4096;
  for (const Format format : stochastic_formats()) {
    const float least = decode(format, 1), most = largest_of(format);
    for (const float value : {0.3f * least, 1.77f * least, 1.1f, 1.37f, -1.9f, 0.93f * most}) {
      const std::vector<float> floats(kCounters, value);
      const std::vector<uint8_t> codes = encoded(format, floats, {{11, 4}, 2}, 0);
      double sum = 0, squares = 0;
      for (size_t i = 0; i < floats.size(); ++i) {
        const double error = double{decode(format, code_at(format, codes, i))} - double{value};
        sum += error;
        squares += error * error;
      }
      const double mean = sum / kCounters, sigma = std::sqrt(squares / kCounters / kCounters);
      EXPECT_LE(std::abs(mean), 4 * sigma) << spec_of(format).name << ' ' << value;
      EXPECT_GT(sigma, 0) << spec_of(format).name << ' ' << value;
    }
  }
}

TEST(Formats, StochasticCodesDependOnTheElementOnly) {
  std::vector<float> floats;
  for (int i = 0; i < 3000; ++i) floats.push_back(static_cast<float>(i % 97) * 0.0371f - 1.7f);
  const StochasticBits bits{{5, 6}, 7};
  constexpr int64_t kFirst = (int64_t{1} << 34) + 3;
  const std::vector<uint8_t> whole = encoded(Format::kE4M3, floats, bits, kFirst);
  for (size_t i = 0; i < floats.size(); ++i)
    ASSERT_EQ(whole[i],
              encode(Format::kE4M3, floats[i], random_word(bits, kFirst + static_cast<int64_t>(i))));
  for (const int64_t split : {1, 2, 3, 255, 1026, 2999}) {
    std::vector<uint8_t> codes(floats.size());
    encode(Format::kE4M3, floats.data(), split, codes.data(), bits, kFirst);
    encode(Format::kE4M3, floats.data() + split, std::ssize(floats) - split, codes.data() + split, bits,
           kFirst + split);
    EXPECT_EQ(codes, whole) << split;
  }
  const StochasticBits later{{5, 6}, 8};
  EXPECT_NE(encoded(Format::kE4M3, floats, later, kFirst), whole);
}

TEST(Formats, OverflowSaturatesAndNanStays) {
  for (const Format format : stochastic_formats()) {
    const FormatSpec spec = spec_of(format);
    const float most = largest_of(format);
    const std::vector<float> floats{most * 1.01f, most * 4,      kInfinity,
                                    -kInfinity,   std::nanf(""), -std::nanf("")};
    fixtures::on_every_target([&](int64_t) {
      for (const auto& codes : {encoded(format, floats), encoded(format, floats, {{1, 2}, 3}, 0)}) {
        for (size_t i = 0; i < 3; ++i)
          EXPECT_EQ(decode(format, code_at(format, codes, i)), most) << spec.name;
        EXPECT_EQ(decode(format, code_at(format, codes, 3)), -most) << spec.name;
        for (size_t i = 4; i < 6; ++i) EXPECT_EQ(code_at(format, codes, i), spec.nan()) << spec.name;
      }
    });
    EXPECT_EQ(std::isnan(decode(format, spec.nan())), spec.has_nan) << spec.name;
  }
  EXPECT_EQ(decode(Format::kF16, encode(Format::kF16, 65519.0f)), 65504.0f);
  EXPECT_EQ(decode(Format::kF16, encode(Format::kF16, 65520.0f)), kInfinity);
  EXPECT_EQ(encode(Format::kE8M0, -1.0f), 255u);
  EXPECT_EQ(encode(Format::kE8M0, 0.0f), 0u);
}

TEST(Formats, WritesNothingAfterTheLastCode) {
  const std::vector<float> floats(70, 1.0f);
  fixtures::on_every_target([&](int64_t) {
    for (int64_t n = 0; n <= 70; ++n) {
      for (const Format format : {Format::kE4M3, Format::kE2M1, Format::kF16}) {
        std::vector<uint8_t> codes(160, 0xee);
        encode(format, floats.data(), n, codes.data());
        const auto bytes = static_cast<size_t>(code_bytes(format, n));
        for (size_t i = bytes; i < codes.size(); ++i) ASSERT_EQ(codes[i], 0xee) << n << ' ' << i;
        if (format == Format::kE2M1 && n % 2 == 1) {
          EXPECT_EQ(codes[bytes - 1], 0x02);
        }
      }
    }
  });
}

TEST(Formats, FlushedSubnormalsChangeNoCode) {
  const auto file = golden("formats.json");
  const std::vector<float> floats = chosen_floats(file);
  const KeepSubnormals restore;  // undoes the next line at the end
  flush_denormals();
  for (const Format format : all_formats()) {
    const std::string name(spec_of(format).name);
    fixtures::on_every_target([&](int64_t) {
      const std::vector<uint8_t> codes = encoded(format, floats);
      EXPECT_EQ(digest(codes.data(), std::ssize(codes)), file["formats"][name]["chosen"].get<std::string>())
          << name;
    });
  }
}

}  // namespace
}  // namespace strata::quantize
