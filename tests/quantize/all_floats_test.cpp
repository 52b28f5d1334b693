// All 2^32 floats in every format, against ml_dtypes.
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "base/parallel.h"
#include "fixtures/every_target.h"
#include "quantize/golden.h"

namespace strata::quantize {
namespace {

TEST(AllFloats, GetTheCodesThatMlDtypesGives) {
  const auto file = golden("formats.json");
  constexpr int64_t kFloats = 1 << 24;
  fixtures::on_every_target([&](int64_t) {
    parallel_for(256, [&](int64_t part) {
      std::vector<float> floats(kFloats);
      for (int64_t i = 0; i < kFloats; ++i)
        floats[static_cast<size_t>(i)] = std::bit_cast<float>(static_cast<uint32_t>(part << 24 | i));
      std::vector<uint8_t> codes;
      for (int f = 0; f < kFormats; ++f) {
        const auto format = static_cast<Format>(f);
        const std::string name(spec_of(format).name);
        codes.resize(static_cast<size_t>(code_bytes(format, kFloats)));
        encode(format, floats.data(), kFloats, codes.data());
        EXPECT_EQ(digest(codes.data(), std::ssize(codes)),
                  file["formats"][name]["all"][part].get<std::string>())
            << name << " part " << part;
      }
    });
  });
}

}  // namespace
}  // namespace strata::quantize
