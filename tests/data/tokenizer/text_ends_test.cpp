// The tokens that begin and end a text, for small versions of the files of published models.
#include "data/tokenizer/text_ends.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "data/tokenizer/golden.h"
#include "fixtures/byte_tokenizer.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

struct Declared {
  const char* name;
  ByteTokenizer tokenizer;
  std::map<std::string, std::string> files;
  std::optional<int32_t> end;
  const char* end_from;
  std::vector<int32_t> begin;
  size_t notes = 0;
};

std::vector<Declared> declared() {
  const ByteTokenizer qwen{.special = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}};
  const ByteTokenizer llama{.special = {"<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"},
                            .before = "<|begin_of_text|>"};
  const ByteTokenizer oss{.special = {"<|startoftext|>", "<|endoftext|>", "<|return|>"}};
  const ByteTokenizer gemma{.special = {"<pad>", "<eos>", "<bos>", "<end_of_turn>"}, .before = "<bos>"};
  const ByteTokenizer bert{.special = {"[PAD]", "[CLS]", "[SEP]"}, .before = "[CLS]", .after = "[SEP]"};
  const ByteTokenizer two{.special = {"</s>", "<end>"}};
  return {
      // The first name of a list is in the vocabulary, and another token ends a text.
      {"Qwen2.5-Instruct",
       qwen,
       {{"tokenizer_config.json",
         R"({"bos_token": null, "eos_token": "<|im_end|>", "add_bos_token": false})"},
        {"config.json", R"({"bos_token_id": 256, "eos_token_id": 258})"},
        {"generation_config.json", R"({"bos_token_id": 256, "eos_token_id": [258, 256]})"}},
       258,
       "tokenizer_config.json",
       {}},
      {"Qwen2.5",
       qwen,
       {{"tokenizer_config.json", R"({"bos_token": null, "eos_token": "<|endoftext|>"})"},
        {"config.json", R"({"bos_token_id": 256, "eos_token_id": 256})"}},
       256,
       "tokenizer_config.json",
       {}},
      {"Llama-3-Instruct",
       llama,
       {{"tokenizer_config.json", R"({"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"})"},
        {"config.json", R"({"bos_token_id": 256, "eos_token_id": [257, 258]})"}},
       258,
       "tokenizer_config.json",
       {256}},
      {"gpt-oss without a tokenizer_config.json",
       oss,
       {{"config.json", R"({"eos_token_id": 258, "pad_token_id": 257})"},
        {"generation_config.json", R"({"bos_token_id": 256, "eos_token_id": [258, 257]})"}},
       258,
       "config.json",
       {256}},
      {"gpt-oss with only generation_config.json",
       oss,
       {{"generation_config.json", R"({"bos_token_id": 256, "eos_token_id": [258, 257]})"}},
       258,
       "generation_config.json",
       {256}},
      {"Gemma 3 with pictures",
       gemma,
       {{"config.json", R"({"eos_token_id": [257, 259], "text_config": {"bos_token_id": 258}})"}},
       257,
       "config.json",
       {258}},
      {"a config of texts within another",
       two,
       {{"config.json", R"({"text_config": {"eos_token_id": 257}})"}},
       257,
       "config.json",
       {}},
      {"BERT",
       bert,
       {{"tokenizer_config.json", R"({"cls_token": "[CLS]", "sep_token": "[SEP]"})"},
        {"config.json", R"({"pad_token_id": 0})"}},
       258,
       "the tokenizer's template",
       {257}},
      {"BERT without a template",
       {.special = {"[PAD]", "[CLS]", "[SEP]"}},
       {{"tokenizer_config.json", R"({"cls_token": "[CLS]", "sep_token": {"content": "[SEP]"}})"}},
       258,
       "tokenizer_config.json",
       {257}},
      {"a template that ends with a token of another name",
       {.special = {"</s>", "<sep>"}, .after = "<sep>"},
       {},
       257,
       "the tokenizer's template",
       {}},
      {"an older special_tokens_map.json",
       two,
       {{"special_tokens_map.json", R"({"bos_token": "</s>", "eos_token": {"content": "<end>"}})"}},
       257,
       "special_tokens_map.json",
       {256}},
      // Ids of ordinary tokens are a class's defaults, which the config was saved with.
      {"ids of no special tokens",
       two,
       {{"config.json", R"({"bos_token_id": 1, "eos_token_id": 2})"},
        {"generation_config.json", R"({"bos_token_id": 1, "eos_token_id": [2, 9999, -1, "x"]})"}},
       256,
       "its name",
       {}},
      {"a token that the tokenizer lacks",
       two,
       {{"tokenizer_config.json", R"({"eos_token": "<|nowhere|>"})"},
        {"config.json", R"({"eos_token_id": 257})"}},
       257,
       "config.json",
       {},
       1},
      {"files that disagree",
       two,
       {{"tokenizer_config.json", R"({"eos_token": "</s>"})"}, {"config.json", R"({"eos_token_id": 257})"}},
       256,
       "tokenizer_config.json",
       {},
       1},
      {"damaged files",
       two,
       {{"tokenizer_config.json", "{"},
        {"config.json", "[1]"},
        {"generation_config.json", R"({"eos_token_id": 257})"}},
       257,
       "generation_config.json",
       {},
       2},
      {"nothing", {.special = {"<x>"}}, {}, std::nullopt, "", {}},
  };
}

TEST(TextEnds, AreThoseDeclaredInTheFiles) {
  for (const Declared& one : declared()) {
    SCOPED_TRACE(one.name);
    const TemporaryFolder folder;
    const Path path = folder.write("tokenizer.json", byte_tokenizer_json(one.tokenizer));
    for (const auto& [name, text] : one.files) folder.write(name, text);
    const Tokenizer tokenizer = Tokenizer::load(path);
    EXPECT_EQ(tokenizer.ends().end, one.end);
    EXPECT_EQ(tokenizer.end_of_text_id(), one.end);
    EXPECT_EQ(tokenizer.ends().end_from, one.end_from);
    EXPECT_EQ(tokenizer.ends().begin, one.begin);
    EXPECT_EQ(tokenizer.ends().notes.size(), one.notes);
  }
}

// Same ends as in transformers (tools/golden/make_text_ends_golden.py).
TEST(TextEnds, AgreeWithTransformers) {
  const auto golden = parse_json<nlohmann::json>(read_file(golden_path("text_ends.json")));
  for (const auto& one : golden["ends"]) {
    const TemporaryFolder folder;
    for (const auto& [name, text] : one["files"].items()) folder.write(name, text.get<std::string>());
    SCOPED_TRACE(one["files"]["tokenizer_config.json"].get<std::string>());
    const Tokenizer tokenizer = Tokenizer::load(folder / "tokenizer.json");
    EXPECT_EQ(tokenizer.end_of_text_id(), one["eos"].get<int32_t>());
    if (!one["bos"].is_null()) {
      EXPECT_EQ(tokenizer.ends().begin, std::vector<int32_t>{one["bos"].get<int32_t>()});
    } else {
      EXPECT_EQ(tokenizer.ends().begin, std::vector<int32_t>());
    }
    EXPECT_EQ(tokenizer.encode_prompt("a"), one["prompt"].get<std::vector<int32_t>>());
  }
}

TEST(SpecialInText, AgreesWithHuggingFace) {
  const auto golden = parse_json<nlohmann::json>(read_file(golden_path("text_ends.json")));
  for (const auto& [name, cases] : golden["special_as_text"].items()) {
    SCOPED_TRACE(name);
    const auto tokenizer = Tokenizer::load(std::string(STRATA_TEST_DATA) + "/tokenizer/" + name + ".json");
    for (const auto& one : cases) {
      const auto text = one[0].get<std::string>();
      EXPECT_EQ(tokenizer.encode(text, {.special_as_text = true}), one[1].get<std::vector<int32_t>>())
          << text;
    }
  }
}

TEST(TextEnds, BeginningAddedByTheFilesBeginsPrompts) {
  const TemporaryFolder folder;
  const Path path = folder.write("tokenizer.json", byte_tokenizer_json({.special = {"<s>", "</s>"}}));
  folder.write("tokenizer_config.json",
               R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true})");
  EXPECT_EQ(Tokenizer::load(path).encode_prompt("a"), (std::vector<int32_t>{256, 'a'}));
  EXPECT_EQ(Tokenizer::load(path).encode("a", {.add_special_tokens = true}), std::vector<int32_t>{'a'});
  folder.write("tokenizer_config.json",
               R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false})");
  EXPECT_EQ(Tokenizer::load(path).encode_prompt("a"), std::vector<int32_t>{'a'});
  folder.write("tokenizer.json", byte_tokenizer_json({.special = {"<s>", "</s>"}, .before = "<s>"}));
  EXPECT_EQ(Tokenizer::load(path).encode_prompt("a"), (std::vector<int32_t>{256, 'a'}))
      << "once, by the template";
}

TEST(TextEnds, DifferenceFromTheTemplateIsReported) {
  const auto said = [](const ByteTokenizer& of, bool bos, bool eos) {
    return template_difference(Tokenizer::from_json(byte_tokenizer_json(of), "t"), bos, eos, "tokenizer");
  };
  const ByteTokenizer both{.special = {"<s>", "</s>"}, .before = "<s>", .after = "</s>"};
  EXPECT_NE(said(both, false, true).find("<s>"), std::string::npos);
  EXPECT_NE(said(both, false, true).find("tokenizer.add_bos = true"), std::string::npos);
  EXPECT_NE(said(both, true, false).find("tokenizer.add_eos = true"), std::string::npos);
  EXPECT_EQ(said(both, true, true), "");
  EXPECT_EQ(said({}, false, false), "");
}

// Phi-3's </s> is an added token that is not special.
TEST(TextEnds, AnAddedTokenMayEndATextWithoutBeingSpecial) {
  auto json = parse_json<nlohmann::json>(byte_tokenizer_json({.special = {"<|endoftext|>", "<|end|>"}}));
  json["added_tokens"][1]["special"] = false;
  const TemporaryFolder folder;
  const Path path = folder.write("tokenizer.json", dump_json(json));
  folder.write("config.json", R"({"eos_token_id": 257})");
  EXPECT_EQ(Tokenizer::load(path).end_of_text_id(), 257);
}

// The text of every special token of every golden tokenizer: no id is special, and the text round-trips.
TEST(SpecialInText, AsTextStaysText) {
  const auto golden = golden_cases();
  for (const auto& [name, cases] : golden["tokenizers"].items()) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = golden_tokenizer(name);
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      if (!tokenizer.is_special(id)) continue;
      const std::string content(tokenizer.id_to_token(id));
      const std::string text = "one " + content + "two" + content + content + " three";
      SpecialCounts found, as_text;
      const auto tokens = tokenizer.encode(text, {.special = &found});
      const auto letters = tokenizer.encode(text, {.special_as_text = true, .special = &as_text});
      EXPECT_EQ(found, (SpecialCounts{{id, 3}})) << content;
      EXPECT_EQ(as_text, found) << content;
      EXPECT_EQ(std::count(tokens.begin(), tokens.end(), id), 3) << content;
      EXPECT_EQ(std::count(letters.begin(), letters.end(), id), 0) << content;
    }
  }
}

TEST(SpecialInText, AddedWordsAreStillFound) {
  auto json = parse_json<nlohmann::json>(byte_tokenizer_json({.special = {"</s>"}}));
  json["added_tokens"].push_back({{"id", 257},
                                  {"content", "word"},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", false}});
  const auto tokenizer = Tokenizer::from_json(dump_json(json), "t");
  EXPECT_EQ(tokenizer.encode("word</s>word", {.special_as_text = true}),
            (std::vector<int32_t>{257, '<', '/', 's', '>', 257}));
  EXPECT_EQ(tokenizer.text_vocab_size(), 256);
  EXPECT_EQ(tokenizer.vocab_size(), 258);
}

// The pieces of a unigram model include its special tokens, so it would find them again.
TEST(SpecialInText, SplitsPiecesOfAModel) {
  const auto tokenizer = Tokenizer::from_json(R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 1, "content": "</s>", "special": true, "normalized": false}], "normalizer": null,
    "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false,
              "vocab": [["<unk>", 0], ["</s>", 0], ["<", -9], ["/", -9], ["s", -9], [">", -9], ["a", -9]]}})",
                                              "t");
  EXPECT_EQ(tokenizer.encode("a</s>a"), (std::vector<int32_t>{6, 1, 6}));
  EXPECT_EQ(tokenizer.encode("a</s>a", {.parse_added_tokens = false}), (std::vector<int32_t>{6, 1, 6}));
  EXPECT_EQ(tokenizer.encode("a</s>a", {.special_as_text = true}), (std::vector<int32_t>{6, 2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace strata::data
