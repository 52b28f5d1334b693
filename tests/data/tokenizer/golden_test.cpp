// Compares ids and texts with those of Hugging Face tokenizers.
#include <gtest/gtest.h>

#include "data/tokenizer/golden.h"

namespace strata::data {
namespace {

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, AgreesWithTheReference) {
  const Tokenizer tokenizer = golden_tokenizer(GetParam());
  const auto cases = golden_cases()["tokenizers"][GetParam()];
  ASSERT_GT(cases.size(), 90u);
  for (const auto& entry : cases) {
    const auto text = entry[0].get<std::string>();
    const auto ids = entry[1].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text), ids) << entry[0];
    EXPECT_EQ(tokenizer.encode(text, {.add_special_tokens = true}), entry[2].get<std::vector<int32_t>>())
        << entry[0];
    EXPECT_EQ(tokenizer.decode_text(ids), entry[3].get<std::string>()) << entry[0];
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden,
                         testing::Values("gpt2", "llama3", "qwen", "o200k", "deepseek", "prefix", "starcoder",
                                         "falcon", "engine", "llama2"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace strata::data
