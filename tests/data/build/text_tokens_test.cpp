// Tokenization in a build: ends of texts, and special tokens within texts.
#include "base/error.h"
#include "data/build/build_fixture.h"
#include "data/build/finish.h"
#include "data/tokens/token_corpus.h"
#include "fixtures/byte_tokenizer.h"

namespace strata::data {
namespace {

class TextTokens : public ::testing::Test {
 protected:
  TextTokens() {
    fixture_.folder().write("c.jsonl", "{\"text\": \"a</s>b\"}\n{\"text\": \"<s>c\"}\n");
    fixture_.folder().write("t/tokenizer.json", byte_tokenizer_json({.special = {"<s>", "</s>", "<end>"}}));
  }
  std::string recipe(const std::string& more) const {
    return "[build]\nfolder = \"out\"\n[[source]]\nname = \"c\"\npath = \"c.jsonl\"\n[output]\ntokens = { "
           "tokenizer = "
           "\"t/tokenizer.json\"" +
           (more.empty() ? "" : ", " + more) + " }\n";
  }
  BuildResult build(const std::string& more = "") {
    std::filesystem::remove_all(fixture_.out());
    return fixture_.build(recipe(more));
  }
  std::vector<int32_t> ids() const {
    const TokenFile file(fixture_.out() / "tokens/c.bin");
    std::vector<int32_t> all(static_cast<size_t>(file.tokens()));
    file.read(0, file.tokens(), all.data());
    return all;
  }
  BuildFixture fixture_;
};

TEST_F(TextTokens, EndFollowsTheTokenizersFilesOrTheRecipe) {
  using Ids = std::vector<int32_t>;
  build();
  EXPECT_EQ(ids(), (Ids{'a', 257, 'b', 257, 256, 'c', 257}));
  build("eos = \"<end>\", bos = 256, add_bos = true");
  EXPECT_EQ(ids(), (Ids{256, 'a', 257, 'b', 258, 256, 256, 'c', 258}));
  // Training reads them together with the tokens, because the files that declare them are not copied.
  const ConfigValue tree = read_toml(fixture_.out() / kSourcesFile);
  EXPECT_EQ(to_toml(*tree.find("tokenizer")->find("eos")), "258");
  EXPECT_EQ(to_toml(*tree.find("tokenizer")->find("bos")), "256");
  EXPECT_EQ(TokenFile(fixture_.out() / "tokens/c.bin").end_of_text(), 258);
  fixture_.folder().write("t/tokenizer_config.json", R"({"eos_token": "<end>"})");
  EXPECT_FALSE(build().reused);
  EXPECT_EQ(ids(), (Ids{'a', 257, 'b', 258, 256, 'c', 258}));
  for (const char* wrong : {"eos = \"<nowhere>\"", "eos = 999", "bos = \"<nowhere>\"", "eos = 1.5",
                            "eos = -1", "special_in_text = \"word\"", "add_bos = true"}) {
    EXPECT_THROW(fixture_.job(recipe(wrong)), ConfigError) << wrong;
  }
}

TEST_F(TextTokens, AnotherEndYieldsAnotherResult) {
  build();
  EXPECT_THROW(fixture_.build(recipe("eos = \"<end>\"")), ConfigError);
  EXPECT_THROW(fixture_.build(recipe("special_in_text = \"text\"")), ConfigError);
  EXPECT_TRUE(fixture_.build(recipe("")).reused);
  EXPECT_TRUE(fixture_.build(recipe("eos = \"auto\", special_in_text = \"token\"")).reused);
}

TEST_F(TextTokens, CountSpecialTokensInText) {
  const std::map<std::string, int64_t> counts{{"<s>", 1}, {"</s>", 1}};
  const BuildResult as_tokens = build();
  EXPECT_EQ(as_tokens.stats.special, counts);
  EXPECT_EQ(parse_json<nlohmann::json>(summary_json(*fixture_.job(recipe("")), as_tokens))["special_in_text"],
            nlohmann::json(counts));
  EXPECT_NE(read_file(fixture_.out() / "report.html").find("spelled out in texts"), std::string::npos);
  const BuildResult as_text = build("special_in_text = \"text\"");
  EXPECT_EQ(as_text.stats.special, counts);
  EXPECT_EQ(ids(), (std::vector<int32_t>{'a', '<', '/', 's', '>', 'b', 257, '<', 's', '>', 'c', 257}));
  EXPECT_TRUE(fixture_.build(recipe("special_in_text = \"text\"")).stats.special == counts)
      << "reported again";
  try {
    build("special_in_text = \"refuse\"");
    ADD_FAILURE() << "not refused";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("c.jsonl:1"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace strata::data
