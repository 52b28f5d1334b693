#include "data/tokenizer/train_unigram.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/tokenizer/fertility.h"
#include "data/tokenizer/golden.h"

namespace strata::data {
namespace {

TrainedUnigram train_on(const std::string& text, const UnigramOptions& options) {
  bool given = false;
  const auto texts = [&](std::string_view& out) {
    out = text;
    return !std::exchange(given, true);
  };
  return train_unigram(texts, options);
}

TEST(TrainUnigram, RoundTripsText) {
  const std::string text = read_file(golden_path("corpus.txt"));
  const UnigramOptions options{.vocab_size = 420};
  if (!can_train_unigram()) {
    EXPECT_THROW(train_on(text, options), ConfigError);
    return;
  }
  const TrainedUnigram trained = train_on(text, options);
  EXPECT_EQ(trained.bytes, static_cast<int64_t>(text.size()));
  const Tokenizer tokenizer = Tokenizer::from_json(trained.json, "trained");
  EXPECT_EQ(tokenizer.vocab_size(), trained.vocab_size);
  EXPECT_EQ(tokenizer.token_to_id("<|endoftext|>"), 1);
  EXPECT_EQ(tokenizer.end_of_text_id(), 1);
  for (const std::string& part : {text, std::string(" a  b\n\n\tc 日本 \u00e9\u2581 \x01"), std::string()}) {
    std::string expected = part;  // U+2581 is how a space is written, so it comes back as one
    if (const size_t at = expected.find("\u2581"); at != expected.npos) expected.replace(at, 3, " ");
    EXPECT_EQ(tokenizer.decode_text(tokenizer.encode(part)), expected);
  }
  EXPECT_LT(tokenizer.encode(text).size(), text.size() / 2);
  EXPECT_EQ(train_on(text, options).json, trained.json);
}

TEST(TrainUnigram, ErrorsOfTheUser) {
  EXPECT_THROW(train_on("a b c", {.vocab_size = 100}), ConfigError);
  if (can_train_unigram()) {
    EXPECT_THROW(train_on("", {.vocab_size = 400}), DataError);
  }
}

TEST(Fertility, CountsWordsAndTokens) {
  EXPECT_EQ(count_spaced_words("  two words \n"), 2);
  EXPECT_EQ(count_spaced_words("日本\u3000語 x"), 3);
  EXPECT_EQ(count_spaced_words(""), 0);
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  Fertility all = measure_fertility(tokenizer, "the kalo");
  all.add(measure_fertility(tokenizer, "x"));
  EXPECT_EQ(all.documents, 2);
  EXPECT_EQ(all.bytes, 9);
  EXPECT_EQ(all.words, 3);
  EXPECT_EQ(all.tokens, static_cast<int64_t>(tokenizer.encode("the kalo").size() + 1));
  EXPECT_DOUBLE_EQ(all.bytes_per_token(), 9.0 / static_cast<double>(all.tokens));
  EXPECT_EQ(Fertility{}.bytes_per_token(), 0);
}

}  // namespace
}  // namespace strata::data
