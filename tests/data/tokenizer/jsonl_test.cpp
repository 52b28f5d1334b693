#include "data/tokenizer/jsonl.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenizer/golden.h"

namespace strata::data {
namespace {

TEST(Jsonl, EncodesAndDecodesEveryLineInOrder) {
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  const auto cases = golden_cases()["tokenizers"]["gpt2"];
  std::string texts;
  for (int round = 0; round < 5; ++round) {
    for (const auto& entry : cases) texts += dump_json(nlohmann::json{{"id", 1}, {"text", entry[0]}}) + "\n";
  }
  std::istringstream in(texts);
  std::stringstream ids;
  EXPECT_EQ(encode_jsonl(tokenizer, in, ids, {}, "t"), static_cast<int64_t>(cases.size() * 5));
  std::string line;
  for (size_t i = 0; i < cases.size() * 5; ++i) {
    ASSERT_TRUE(std::getline(ids, line));
    EXPECT_EQ(parse_json<nlohmann::json>(line)["ids"], cases[i % cases.size()][1]);
  }
  EXPECT_FALSE(std::getline(ids, line));

  ids.clear();
  ids.seekg(0);
  std::stringstream back;
  decode_jsonl(tokenizer, ids, back, {}, "t");
  for (size_t i = 0; i < cases.size() * 5; ++i) {
    ASSERT_TRUE(std::getline(back, line));
    EXPECT_EQ(parse_json<nlohmann::json>(line)["text"], cases[i % cases.size()][3]);
  }
}

TEST(Jsonl, NamesTheBadLine) {
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  for (const std::string bad :
       {"", "  ", "{", "[]", "{\"txt\":\"a\"}", "{\"text\":1}", "{\"text\":\"\xff\"}"}) {
    std::istringstream in("{\"text\":\"a\"}\n" + bad + "\n");
    std::ostringstream out;
    try {
      encode_jsonl(tokenizer, in, out, {}, "in.jsonl");
      ADD_FAILURE() << bad;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("in.jsonl:2"), std::string::npos) << error.what();
    }
  }
  for (const std::string bad :
       {"{\"ids\":[1,99999]}", "{\"ids\":[-1]}", "{\"ids\":[1.5]}", "{\"ids\":3}", "{}"}) {
    std::istringstream in(bad);
    std::ostringstream out;
    EXPECT_THROW(decode_jsonl(tokenizer, in, out, {}, "in.jsonl"), DataError) << bad;
  }
}

// Reads lines as `strata data` and `strata train` do.
TEST(Jsonl, OtherFieldsMayContainAnything) {
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  std::istringstream in(
      "{\"n\":1e999,\"s\":\"\\ud800\",\"text\":\"first\",\"text\":\"last\"}\n{\"text\":\"\"}\n");
  std::ostringstream out;
  encode_jsonl(tokenizer, in, out, {}, "t");
  EXPECT_EQ(out.str(), ids_to_json(tokenizer.encode("last")) + "\n{\"ids\":[]}\n");
}

TEST(Jsonl, EmptyInputYieldsEmptyOutput) {
  std::istringstream in("");
  std::ostringstream out;
  EXPECT_EQ(encode_jsonl(golden_tokenizer("gpt2"), in, out, {}, "t"), 0);
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace strata::data
