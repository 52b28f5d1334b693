#include "data/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "data/tokenizer/golden.h"

namespace strata::data {
namespace {

TEST(Tokenizer, ReturnsItsTokens) {
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  EXPECT_EQ(tokenizer.vocab_size(), 526);  // 520 and six added ones
  EXPECT_EQ(tokenizer.token_to_id("<|endoftext|>"), 0);
  EXPECT_EQ(tokenizer.end_of_text_id(), 0);
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(1));
  EXPECT_EQ(tokenizer.id_to_token(1), "!");
  EXPECT_EQ(tokenizer.token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(-1), "");
  EXPECT_EQ(tokenizer.id_to_token(1 << 20), "");
  EXPECT_EQ(tokenizer.decode_bytes(*tokenizer.token_to_id("\u0120")), " ");
  EXPECT_EQ(tokenizer.json(), read_file(golden_path("gpt2.json")));
  EXPECT_EQ(tokenizer.hash(), hash64(tokenizer.json()));
  EXPECT_EQ(golden_tokenizer("llama2").end_of_text_id(), 2);
  EXPECT_EQ(golden_tokenizer("llama2").prefix_ids().size(), 1u);
}

TEST(Tokenizer, RoundTripsEveryByteString) {
  std::mt19937 random(11);
  for (const char* name : {"gpt2", "llama3", "o200k", "deepseek", "engine"}) {
    const Tokenizer tokenizer = golden_tokenizer(name);
    for (int round = 0; round < 200; ++round) {
      std::string text(random() % 200, '\0');
      const unsigned range = round % 2 ? 256 : 64;  // the second kind has runs of controls, spaces and digits
      for (char& byte : text) byte = static_cast<char>(random() % range);
      const auto ids = tokenizer.encode(text, {.parse_added_tokens = false});
      EXPECT_EQ(tokenizer.decode(ids), text) << name;
    }
  }
}

TEST(Tokenizer, AddedTokensAreOptional) {
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  const std::string text = "<|endoftext|>";
  EXPECT_EQ(tokenizer.encode(text), std::vector<int32_t>{0});
  const auto plain = tokenizer.encode(text, {.parse_added_tokens = false});
  EXPECT_GT(plain.size(), 1u);
  EXPECT_EQ(tokenizer.decode(plain), text);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a<|endoftext|>b"), {.skip_special = true}), "ab");
}

TEST(Tokenizer, UnknownIdsAreNamed) {
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  const std::vector<int32_t> ids = {1, 9999};
  EXPECT_THROW(tokenizer.decode(ids), DataError);
  EXPECT_EQ(tokenizer.decode(ids, {.skip_unknown_ids = true}), "!");
}

// One long piece must go through the heap: quadratic time would take minutes here.
TEST(Tokenizer, LongPiecesAreNotQuadratic) {
  const Tokenizer tokenizer = golden_tokenizer("llama3");
  for (const char* unit : {"a", "-", " ", "an", "\u65e5"}) {
    std::string text;
    while (text.size() < 1000000) text += unit;
    const auto ids = tokenizer.encode(text, {.parse_added_tokens = false});
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

// The heap and the scan yield the same ids: a long piece equals its text cut where no merge crosses.
TEST(Tokenizer, ShortAndLongPiecesMergeAlike) {
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  const auto once = tokenizer.encode("thekaloan!");
  std::string text;
  std::vector<int32_t> expected;
  for (int i = 0; i < 30; ++i) {
    text += "thekaloan";
    text += '!';
    expected.insert(expected.end(), once.begin(), once.end());
  }
  EXPECT_EQ(tokenizer.encode(text), expected);
}

TEST(Tokenizer, IsSharedByThreads) {
  const Tokenizer tokenizer = golden_tokenizer("qwen");
  const auto cases = golden_cases()["tokenizers"]["qwen"];
  parallel_for(400, [&](int64_t i) {
    const auto& entry = cases[static_cast<size_t>(i) % cases.size()];
    if (tokenizer.encode(entry[0].get<std::string>()) != entry[1].get<std::vector<int32_t>>()) {
      throw InternalError("thread-dependent ids in case {}", i);
    }
  });
}

}  // namespace
}  // namespace strata::data
