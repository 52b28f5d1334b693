// Codes and scales against torchao, and against NumPy with ml_dtypes' casts where torchao has no such rule
// (tools/golden/make_precision_golden.py).
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "fixtures/every_target.h"
#include "quantize/golden.h"
#include "quantize/quantizer_testing.h"

namespace strata::quantize {
namespace {

std::map<std::string, ScaleRule> rules() {
  std::map<std::string, ScaleRule> rules;
  const std::map<std::string, MxScale> modes{{"floor", MxScale::kFloor},
                                             {"round_up", MxScale::kRoundUp},
                                             {"ceil", MxScale::kCeil},
                                             {"even", MxScale::kEven}};
  for (const Format format : {Format::kE4M3, Format::kE5M2, Format::kE2M3, Format::kE3M2, Format::kE2M1}) {
    const std::string name(spec_of(format).name);
    for (const auto& [mode_name, mode] : modes)
      rules.emplace("mx " + name + " " + mode_name, ScaleRule::mx(format, mode));
    if (spec_of(format).bits() != 8) continue;
    rules.emplace("tensor " + name, ScaleRule::tensor(format));
    rules.emplace("row " + name, ScaleRule::row(format));
  }
  for (const PowerOfTwo power : {PowerOfTwo::kNo, PowerOfTwo::kYes}) {
    const std::string tail = power == PowerOfTwo::kYes ? " power_of_two" : "";
    rules.emplace("block_row e4m3" + tail, ScaleRule::block_row(Format::kE4M3, power));
    rules.emplace("block_square e4m3" + tail, ScaleRule::block_square(Format::kE4M3, power));
  }
  rules.emplace("nvfp4_square", ScaleRule::nvfp4_square());
  for (const char* const tail : {"", " stochastic", " hadamard"})
    rules.emplace(std::string("nvfp4_row") + tail, ScaleRule::nvfp4_row());
  return rules;
}

std::vector<std::string> digests_of_rows(const std::vector<uint8_t>& bytes, int64_t rows, int64_t row_bytes) {
  std::vector<std::string> digests;
  for (int64_t row = 0; row < rows; row += 32)
    digests.push_back(digest(bytes.data() + row * row_bytes, std::min<int64_t>(32, rows - row) * row_bytes));
  return digests;
}

TEST(QuantizerGolden, CodesAndScalesAreEqualByteForByte) {
  const auto file = golden("quantizer.json");
  const auto rows = file["rows"].get<int64_t>(), columns = file["columns"].get<int64_t>();
  const StochasticBits bits = bits_of_golden(file);
  const auto all = rules();
  std::set<std::string> seen;
  std::map<std::string, std::vector<float>> matrices{
      {"plain", golden_matrix(bits.key, rows, columns, false)},
      {"special", golden_matrix(bits.key, rows, columns, true)}};
  for (const auto& entry : file["cases"]) {
    const auto name = entry["rule"].get<std::string>();
    const bool is_bf16 = entry["dtype"] == "bf16";
    const Along along = entry["along"] == "rows" ? Along::kRows : Along::kColumns;
    ASSERT_TRUE(all.contains(name)) << name;
    seen.insert(name);
    const std::vector<float>& floats = matrices[entry["matrix"].get<std::string>()];
    const std::vector<BF16> halves(floats.begin(), floats.end());
    Source source = source_of(floats, rows, columns);
    if (is_bf16) source.data = halves.data(), source.dtype = DType::kBF16;
    source.first = file["first"].get<int64_t>();
    Treatment treatment{all.at(name)};
    if (name.ends_with("stochastic")) treatment.stochastic = bits;
    if (name.ends_with("hadamard")) treatment.hadamard = HadamardSigns{file["signs"].get<uint16_t>()};
    fixtures::on_every_target([&](int64_t) {
      const Result result = quantized(source, treatment, along);
      const std::string where =
          name + " of " + entry["dtype"].get<std::string>() + " along " + entry["along"].get<std::string>();
      EXPECT_EQ(digests_of_rows(result.codes, result.layout.rows, result.layout.code_row_bytes),
                entry["codes"].get<std::vector<std::string>>())
          << where;
      EXPECT_EQ(digests_of_rows(result.scales, result.layout.scale_rows,
                                result.layout.scale_columns * size_of(result.layout.scale_type)),
                entry["scales"].get<std::vector<std::string>>())
          << where;
    });
  }
  EXPECT_EQ(seen.size(), all.size());
}

// nvfp4 as experts take it, rounded by the places of rows.
TEST(QuantizerGolden, RowsOfNvfp4WithAScaleEachAreEqualByteForByte) {
  const auto file = golden("experts.json");
  const auto rows = file["rows"].get<int64_t>(), columns = file["columns"].get<int64_t>();
  const StochasticBits bits{{file["seed"].get<uint64_t>(), file["stream"].get<uint32_t>()}};
  const std::vector<float> floats = golden_matrix(bits.key, rows, columns, false);
  const std::vector<BF16> halves(floats.begin(), floats.end());
  std::vector<int32_t> places;
  for (int32_t row = 0; row < rows; ++row) {
    places.push_back(7 + row / 60);
    places.push_back(row % 60);
  }
  EXPECT_EQ(file["quantizers"].size(), 16u);
  for (const auto& entry : file["quantizers"]) {
    const Along along = entry["along"] == "rows" ? Along::kRows : Along::kColumns;
    const auto how = entry["treatment"].get<std::string>();
    Source source = source_of(floats, rows, columns);
    if (entry["dtype"] == "bf16") source.data = halves.data(), source.dtype = DType::kBF16;
    source.places = places.data();
    Treatment treatment{ScaleRule::nvfp4_by_row()};
    if (how.ends_with("stochastic")) treatment.stochastic = bits;
    if (how.starts_with("hadamard")) treatment.hadamard = HadamardSigns{file["signs"].get<uint16_t>()};
    fixtures::on_every_target([&](int64_t) {
      const Result result = quantized(source, treatment, along);
      const auto digest_of = [](const auto& all) {
        return digest(all.data(), std::ssize(all) * static_cast<int64_t>(sizeof all[0]));
      };
      std::vector<float> of_rows;
      for (const float greatest : result.greatest) of_rows.push_back(nvfp4_tensor_scale(greatest));
      EXPECT_EQ(digest_of(result.codes), entry["codes"].get<std::string>()) << entry.dump();
      EXPECT_EQ(digest_of(result.scales), entry["scales"].get<std::string>()) << entry.dump();
      EXPECT_EQ(digest_of(of_rows), entry["of_rows"].get<std::string>()) << entry.dump();
    });
  }
}

}  // namespace
}  // namespace strata::quantize
