// Compares every kind of tokenizer file on hard texts with the ids and texts of its original library.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenizer/golden.h"

namespace strata::data {
namespace {

std::string kinds_path(const std::string& name) {
  return std::string(STRATA_TEST_DATA) + "/tokenizer/kinds/" + name;
}

struct Kind {
  const char* name;  // in cases.json
  const char* file;
  const char* pattern = "";
};

class Kinds : public testing::TestWithParam<Kind> {};

TEST_P(Kinds, AgreesWithItsLibrary) {
  const Tokenizer tokenizer = Tokenizer::load(kinds_path(GetParam().file), GetParam().pattern);
  const auto texts = parse_json<nlohmann::json>(read_file(kinds_path("texts.json")));
  const auto cases = parse_json<nlohmann::json>(read_file(kinds_path("cases.json")))[GetParam().name];
  ASSERT_EQ(cases.size(), texts.size());
  ASSERT_GT(cases.size(), 150u);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    const auto ids = cases[i][0].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text), ids) << texts[i];
    EXPECT_EQ(tokenizer.encode(text, {.add_special_tokens = true}), cases[i][1].get<std::vector<int32_t>>())
        << texts[i];
    EXPECT_EQ(tokenizer.decode_text(ids), cases[i][2].get<std::string>()) << texts[i];
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, Kinds,
    testing::Values(
        Kind{"bert", "bert.json"}, Kind{"bert_cased", "bert_cased.json"}, Kind{"words", "words.json"},
        Kind{"t5", "t5.json"}, Kind{"unigram_bytes", "unigram_bytes.json"}, Kind{"xlmr", "xlmr.json"},
        Kind{"llama2_legacy", "llama2_legacy.json"}, Kind{"llama2_first", "llama2_first.json"},
        Kind{"clip", "clip.json"}, Kind{"olmo2", "olmo2.json"}, Kind{"spm_bpe_bytes", "spm_bpe_bytes.model"},
        Kind{"spm_bpe_rules", "spm_bpe_rules.model"}, Kind{"spm_unigram_rules", "spm_unigram_rules.model"},
        Kind{"spm_unigram_bytes", "spm_unigram_bytes.model"},
        Kind{"spm_unigram_suffix", "spm_unigram_suffix.model"},
        Kind{"gpt2.tiktoken", "gpt2.tiktoken", "gpt2"}, Kind{"cl100k.tiktoken", "cl100k.tiktoken", "cl100k"},
        Kind{"o200k.tiktoken", "o200k.tiktoken", "o200k"}, Kind{"tekken", "tekken.json"}),
    [](const auto& test) {
      std::string name = test.param.name;
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

void expect_error(const std::string& content, const std::string& named, const std::string& pattern = "") {
  try {
    Tokenizer::from_content(content, "x.file", pattern);
    ADD_FAILURE() << "accepted a file that lacks: " << named;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("x.file"), std::string::npos) << error.what();
  }
}

TEST(TokenizerKinds, TiktokenNeedsAPattern) {
  const std::string file = read_file(kinds_path("gpt2.tiktoken"));
  expect_error(file, "--pattern");
  EXPECT_THROW(Tokenizer::from_content(file, "x.file", "gpt7"), ConfigError);
  EXPECT_THROW(Tokenizer::from_content(read_file(kinds_path("bert.json")), "x.file", "gpt2"), ConfigError);
}

// The copy in a checkpoint must load on its own and behave the same.
TEST(TokenizerKinds, EveryKindLoadsFromItsCheckpointCopy) {
  const auto texts = parse_json<nlohmann::json>(read_file(kinds_path("texts.json")));
  const std::pair<const char*, const char*> kinds[] = {{"o200k.tiktoken", "o200k"},
                                                       {"gpt2.tiktoken", "qwen"},
                                                       {"tekken.json", ""},
                                                       {"spm_bpe_bytes.model", ""}};
  for (const auto& [file, pattern] : kinds) {
    const Tokenizer first = Tokenizer::load(kinds_path(file), pattern);
    const Tokenizer second = Tokenizer::from_content(first.json(), file);
    EXPECT_EQ(first.hash(), second.hash());
    EXPECT_EQ(first.vocab_size(), second.vocab_size());
    for (const auto& text : texts) {
      EXPECT_EQ(first.encode(text.get<std::string>()), second.encode(text.get<std::string>()))
          << file << text;
    }
  }
}

TEST(TokenizerKinds, NamesDamage) {
  const std::string tiktoken = read_file(kinds_path("gpt2.tiktoken"));
  const auto lines = std::count(tiktoken.begin(), tiktoken.end(), '\n');
  expect_error(tiktoken + "AAAA\n", fmt::format("line {}", lines + 1), "gpt2");
  expect_error(tiktoken + "AAAA x\n", fmt::format("line {}", lines + 1), "gpt2");
  expect_error(tiktoken + "AAAA 3\n", "rank 3 occurs twice", "gpt2");
  expect_error(tiktoken.substr(0, tiktoken.find('\n', 200) + 1), "byte 0x", "gpt2");
  const std::string model = read_file(kinds_path("spm_bpe_bytes.model"));
  expect_error(model.substr(0, model.size() - 3), "damaged");
  expect_error(model.substr(0, 200), "");
  const std::string tekken = read_file(kinds_path("tekken.json"));
  expect_error(tekken.substr(0, tekken.size() / 2), "damaged");
}

TEST(TokenizerKinds, EveryTruncationOfAModelIsAnErrorOrLoads) {
  const std::string model = read_file(kinds_path("spm_unigram_rules.model"));
  for (size_t size = 0; size < model.size(); size += 7) {
    try {
      const Tokenizer tokenizer = Tokenizer::from_content(model.substr(0, size), "x.file");
      tokenizer.decode_text(tokenizer.encode("kalo the ﬁ日"));
    } catch (const DataError&) {
    }
  }
}

// Changed, removed or doubled bytes: an error, or a tokenizer that works.
TEST(TokenizerKinds, RandomDamageIsAnErrorOrLoads) {
  std::mt19937 random(3);
  for (const char* file : {"t5.json", "bert.json", "llama2_first.json", "tekken.json", "cl100k.tiktoken",
                           "spm_bpe_rules.model", "spm_unigram_bytes.model"}) {
    const std::string whole = read_file(kinds_path(file));
    const std::string pattern = std::string(file).ends_with(".tiktoken") ? "cl100k" : "";
    for (int round = 0; round < 60; ++round) {
      std::string damaged = whole;
      for (unsigned n = 1 + random() % 4; n > 0; --n) {
        const size_t at = random() % damaged.size();
        const size_t size = std::min<size_t>(1 + random() % 8, damaged.size() - at);
        if (random() % 3 == 0) damaged.erase(at, size);
        if (random() % 3 == 0) damaged.insert(at, damaged.substr(at, size));
        if (random() % 3 == 0 && at < damaged.size()) damaged[at] = static_cast<char>(random());
      }
      try {
        const Tokenizer tokenizer = Tokenizer::from_content(damaged, "x.file", pattern);
        tokenizer.decode_text(tokenizer.encode("kalo  the \ufb01\u65e5 <s>12", {.add_special_tokens = true}));
      } catch (const DataError&) {
      } catch (const ConfigError&) {  // it looks like another kind, which takes no pattern
      }
    }
  }
}

TEST(TokenizerKinds, SpecialTokensAreKnown) {
  const Tokenizer model = Tokenizer::load(kinds_path("spm_unigram_rules.model"));
  EXPECT_EQ(model.end_of_text_id(), 2);
  EXPECT_EQ(std::vector<int32_t>(model.prefix_ids().begin(), model.prefix_ids().end()),
            std::vector<int32_t>{1});
  const Tokenizer tekken = Tokenizer::load(kinds_path("tekken.json"));
  EXPECT_EQ(tekken.end_of_text_id(), 2);
  EXPECT_EQ(tekken.id_to_token(20), "<SPECIAL_20>");
  EXPECT_TRUE(tekken.is_special(29));
  EXPECT_FALSE(tekken.is_special(30));
  EXPECT_EQ(Tokenizer::load(kinds_path("gpt2.tiktoken"), "gpt2").end_of_text_id(), std::nullopt);
}

}  // namespace
}  // namespace strata::data
