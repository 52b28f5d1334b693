// Damaged, unusual and unsupported files.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenizer/golden.h"

namespace strata::data {
namespace {

// A small file with one change: `path` (JSON pointer) set to `value`.
nlohmann::json small_file() {
  return parse_json<nlohmann::json>(R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[],
    "normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
    "post_processor":null,"decoder":{"type":"ByteLevel"},
    "model":{"vocab":{"a":0,"b":1,"ab":2,"aba":3},"merges":["a b","ab a"]}})");
}

std::string changed(const std::string& path, const nlohmann::json& value) {
  auto file = small_file();
  file[nlohmann::json::json_pointer(path)] = value;
  return dump_json(file);
}

void expect_refused(const std::string& json, const std::string& named) {
  try {
    Tokenizer::from_json(json, "x.json");
    ADD_FAILURE() << "accepted: " << json.substr(0, 200);
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("x.json"), std::string::npos) << error.what();
  }
}

TEST(TokenizerFile, OldFormsLoad) {
  const Tokenizer tokenizer = Tokenizer::from_json(dump_json(small_file()), "x.json");
  EXPECT_EQ(tokenizer.encode("abab"), (std::vector<int32_t>{2, 2}));
  EXPECT_EQ(tokenizer.encode("xaby"), (std::vector<int32_t>{2}));  // x and y are not in the vocabulary:
                                                                   // dropped, as there
  auto file = small_file();
  file["model"]["merges"] = parse_json<nlohmann::json>(R"([["a","b"],["ab","a"]])");
  EXPECT_EQ(Tokenizer::from_json(dump_json(file), "x.json").encode("aba"), std::vector<int32_t>{3});
}

// Ids of added tokens follow the vocabulary, whatever the file declares.
TEST(TokenizerFile, AddedTokenIdsAreCounted) {
  const auto json =
      changed("/added_tokens", parse_json<nlohmann::json>(R"([{"id":77,"content":"<x>","special":true},
    {"id":5,"content":"ab"},{"id":9,"content":"<y>"}])"));
  const Tokenizer tokenizer = Tokenizer::from_json(json, "x.json");
  EXPECT_EQ(tokenizer.token_to_id("<x>"), 4);
  EXPECT_EQ(tokenizer.token_to_id("ab"), 2);
  EXPECT_EQ(tokenizer.token_to_id("<y>"), 5);
  EXPECT_EQ(tokenizer.vocab_size(), 6);
}

TEST(TokenizerFile, UnsupportedPartsAreNamed) {
  expect_refused(changed("/normalizer", {{"type", "Sorcery"}}), "Sorcery");
  expect_refused(changed("/normalizer", {{"type", "Precompiled"}}), "precompiled_charsmap");
  expect_refused(changed("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA////"}}),
                 "charsmap");
  expect_refused(changed("/pre_tokenizer", {{"type", "UnicodeScripts"}}), "UnicodeScripts");
  expect_refused(changed("/decoder", {{"type", "CTC"}}), "CTC");
  expect_refused(changed("/post_processor", {{"type", "Magic"}}), "Magic");
  expect_refused(changed("/model/type", "Unigram"), "Unigram");
  expect_refused(changed("/model/type", "WordPiece"), "WordPiece");
  expect_refused(changed("/model/type", "WordLevel"), "WordLevel");
  expect_refused(changed("/model/dropout", 0.1), "dropout");
  expect_refused(changed("/truncation", {{"max_length", 4}}), "truncation");
  expect_refused(changed("/version", "2.0"), "2.0");
  expect_refused(
      changed(
          "/pre_tokenizer",
          parse_json<nlohmann::json>(
              R"j({"type":"Split","pattern":{"Regex":"(?<name>a)"},"behavior":"Isolated","invert":false})j")),
      "group");
  expect_refused(
      changed("/pre_tokenizer",
              parse_json<nlohmann::json>(
                  R"j({"type":"Split","pattern":{"String":"a"},"behavior":"Shredded","invert":false})j")),
      "Shredded");
}

TEST(TokenizerFile, ErrorsAreNamed) {
  expect_refused(changed("/model/merges", {"a c"}), "'c' is not in model.vocab");
  expect_refused(changed("/model/merges", {"b a"}), "'ba' is not in model.vocab");
  expect_refused(changed("/model/merges", {"abc"}), "merges[0]");
  expect_refused(changed("/model/merges", 3), "merges");
  expect_refused(changed("/model/vocab", nlohmann::json::object()), "vocab");
  expect_refused(changed("/model/vocab/a", -1), "'a'");
  expect_refused(changed("/model/vocab/a", 4000000000u), "'a'");
  expect_refused(changed("/model/unk_token", "<unk>"), "unk_token");
  expect_refused(changed("/added_tokens", {{{"id", 1}}}), "content");
  expect_refused(changed("/model", nullptr), "model");
  expect_refused("[]", "object");
  expect_refused("", "empty");
  expect_refused("hello", "not JSON");
  expect_refused(R"({"config":{},"vocab":[]})", "default_vocab_size");
}

TEST(TokenizerFile, EveryTruncationIsAnError) {
  const std::string json = dump_json(small_file());
  for (size_t size = 0; size < json.size(); ++size) {
    EXPECT_THROW(Tokenizer::from_json(json.substr(0, size), "x.json"), DataError) << size;
  }
}

TEST(TokenizerFile, MissingFileIsAConfigError) {
  EXPECT_THROW(Tokenizer::load("no/such/tokenizer.json"), ConfigError);
}

}  // namespace
}  // namespace strata::data
