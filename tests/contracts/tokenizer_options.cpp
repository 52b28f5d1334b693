// Contracts of the options of `strata tokenizer`, checked by vocabularies, ids and counts.
#include <algorithm>
#include <set>

#include "base/json.h"
#include "contracts/contract.h"
#include "contracts/options.h"

namespace strata::contracts {
namespace {

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}
std::set<std::string> vocabulary(const Desk& desk, const std::string& file) {
  std::set<std::string> out;
  const json read = parse_json<json>(desk.read(file));
  for (const auto& [token, id] : read.at("model").at("vocab").items()) out.insert(token);
  return out;
}

void train(const std::string&) {
  const Desk desk;
  desk.put("a.txt", repeated("zqzq\n", 40) + repeated("xw\n", 3));
  desk.put("b.txt", repeated("vkvk\n", 40));
  const json result =
      desk.object("tokenizer train --input a.txt b.txt --vocab-size 262 --output t.json --json");
  EXPECT_EQ(result["vocab_size"], 262);
  EXPECT_EQ(result["output"], "t.json");
  EXPECT_EQ(result["merges"], 5) << "the rest are 256 bytes and a special token";
  EXPECT_EQ(result["bytes"], 40 * 5 + 3 * 3 + 40 * 5);
  const auto entries = vocabulary(desk, "t.json");
  EXPECT_EQ(entries.size(), 262u);
  EXPECT_TRUE(entries.contains("zqzq") && entries.contains("vkvk")) << "from both files";
  // Trained on one file, it has nothing from the other.
  EXPECT_EQ(desk.strata("tokenizer train --input a.txt --vocab-size 260 --output a.json").out,
            "wrote a.json: 260 tokens from 209 bytes of text\n");
  EXPECT_FALSE(vocabulary(desk, "a.json").contains("vkvk"));
  // Pairs that occur less often are not merged.
  for (const int least : {3, 4}) {
    desk.object(
        "tokenizer train --input a.txt --vocab-size 280 --output m.json --json --force --min-frequency " +
        std::to_string(least));

    EXPECT_EQ(vocabulary(desk, "m.json").contains("xw"), least == 3);
  }
  const std::string made = desk.read("m.json");
  EXPECT_TRUE(has(desk.refused("tokenizer train --input b.txt --vocab-size 260 --output m.json"), "--force"));
  EXPECT_EQ(desk.read("m.json"), made);
  desk.refused("tokenizer train --input nowhere.txt --vocab-size 300 --output x.json");
  desk.refused("tokenizer train --input a.txt --vocab-size 100 --output x.json");
}

void special(const std::string&) {
  const Desk desk;
  desk.put("a.txt", repeated("a <one> b <two> c\n", 9));
  desk.object(
      "tokenizer train --input a.txt --vocab-size 270 --output t.json --json --special <two> --special "
      "<one>");
  const json info = desk.object("tokenizer info --tokenizer t.json --json");
  EXPECT_EQ(info["special_tokens"], json::array({"<two>", "<one>"}));
  EXPECT_EQ(desk.object("tokenizer encode --tokenizer t.json", {"--text", "<one><two>"})["ids"],
            json::array({1, 0}));
}

// GPT-2 does not split a number; Llama 3 splits it into groups of at most three digits.
void pattern(const std::string&) {
  const Desk desk;
  desk.put("a.txt", repeated("123456\n", 30));
  desk.object("tokenizer train --input a.txt --vocab-size 270 --output g.json --json");
  desk.object("tokenizer train --input a.txt --vocab-size 270 --output l.json --json --pattern llama3");
  EXPECT_TRUE(vocabulary(desk, "g.json").contains("123456"));
  EXPECT_TRUE(vocabulary(desk, "l.json").contains("123"));
  EXPECT_FALSE(vocabulary(desk, "l.json").contains("1234"));
  EXPECT_TRUE(has(
      desk.refused("tokenizer train --input a.txt --vocab-size 270 --output x.json --pattern gpt3"), "gpt3"));
}

void model(const std::string&) {
  const Desk desk;
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "the cat number " + std::to_string(i * 7919 % 1000) + " sat on the mat\n";
  desk.put("a.txt", text);
  desk.object("tokenizer train --input a.txt --vocab-size 300 --output b.json --json --model bpe");
  EXPECT_EQ(parse_json<json>(desk.read("b.json"))["model"]["type"], "BPE");
  const Outcome unigram =
      desk.strata("tokenizer train --input a.txt --vocab-size 320 --output u.json --model unigram");
  if (has(unigram.err, "SentencePiece") && unigram.code != 0) GTEST_SKIP() << "built without SentencePiece";
  ASSERT_EQ(unigram.code, 0) << unigram.err;
  EXPECT_EQ(parse_json<json>(desk.read("u.json"))["model"]["type"], "Unigram");
  desk.refused("tokenizer train --input a.txt --vocab-size 300 --output x.json --model wordpiece");
}

struct Ready : Desk {
  Ready() { write_texts(); }
};

// Bytes without a merge have ids of single bytes; "!" is the first in GPT-2's alphabet.
void encode(const std::string&) {
  const Ready desk;
  EXPECT_EQ(desk.object("tokenizer encode --tokenizer tokenizer.json --text !\"#")["ids"],
            json::array({1, 2, 3}));
  desk.put("texts.jsonl", "{\"text\": \"!\"}\n{\"text\": \"\"}\n{\"text\": \"the <|endoftext|>\"}\n");
  const auto lines = desk.strata("tokenizer encode --tokenizer tokenizer.json --jsonl texts.jsonl").lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["ids"], json::array({1}));
  EXPECT_EQ(lines[1]["ids"], json::array());
  EXPECT_EQ(lines[2]["ids"].back(), 0) << "added tokens are recognized";
  // Decoding restores the text.
  desk.put("ids.jsonl", dump_json(lines[0]) + "\n" + dump_json(lines[2]) + "\n");
  const auto texts = desk.strata("tokenizer decode --tokenizer tokenizer.json --jsonl ids.jsonl").lines();
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0]["text"], "!");
  EXPECT_EQ(texts[1]["text"], "the <|endoftext|>");
  const auto skipped =
      desk.strata("tokenizer decode --tokenizer tokenizer.json --jsonl ids.jsonl --skip-special-tokens")
          .lines();
  EXPECT_EQ(skipped[1]["text"], "the ");
  desk.refused("tokenizer encode --tokenizer nowhere.json --text a");
  desk.refused("tokenizer encode --tokenizer tokenizer.json");
  desk.refused("tokenizer encode --tokenizer tokenizer.json --text a --jsonl texts.jsonl");
  desk.refused("tokenizer decode --tokenizer tokenizer.json --jsonl nowhere.jsonl");
}

void add_special_tokens(const std::string&) {
  const Ready desk;
  json file = parse_json<json>(desk.read("tokenizer.json"));
  file["post_processor"] = parse_json<json>(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
      "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}})");
  desk.put("with.json", dump_json(file));
  EXPECT_EQ(desk.object("tokenizer encode --tokenizer with.json --text ! --add-special-tokens")["ids"],
            json::array({0, 1}));
  EXPECT_EQ(desk.object("tokenizer encode --tokenizer with.json --text !")["ids"], json::array({1}));
}

std::string base64(const std::string& bytes) {
  static const char* const kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i) out += at + i <= bytes.size() ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}
// A rank file of tiktoken has no pattern; --pattern must specify it.
void rank_pattern(const std::string&) {
  const Desk desk;
  std::string ranks;
  int rank = 0;
  const auto add = [&](const std::string& token) {
    ranks += base64(token) + " " + std::to_string(rank++) + "\n";
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (const char* token : {"12", "123", "1234"}) add(token);
  desk.put("ranks.tiktoken", ranks);
  EXPECT_TRUE(has(desk.refused("tokenizer encode --tokenizer ranks.tiktoken --text 1234"), "--pattern"));
  EXPECT_EQ(desk.object("tokenizer encode --tokenizer ranks.tiktoken --pattern gpt2 --text 1234")["ids"],
            json::array({258}));
  EXPECT_EQ(desk.object("tokenizer encode --tokenizer ranks.tiktoken --pattern llama3 --text 1234")["ids"],
            json::array({257, 52}));
  desk.put("ids.jsonl", "{\"ids\": [258, 52]}\n");
  EXPECT_EQ(
      desk.object("tokenizer decode --tokenizer ranks.tiktoken --pattern gpt2 --jsonl ids.jsonl")["text"],
      "12344");
  desk.refused("tokenizer decode --tokenizer ranks.tiktoken --jsonl ids.jsonl");
  EXPECT_EQ(desk.object("tokenizer info --tokenizer ranks.tiktoken --pattern gpt2 --json")["vocab_size"],
            259);
  desk.refused("tokenizer info --tokenizer ranks.tiktoken --json");
}

// Compares counts for known texts.
void info(const std::string&) {
  const Ready desk;
  desk.put("a.jsonl",
           "{\"text\": \"the cat sat\", \"language\": \"en\"}\n{\"text\": \"mat\", \"language\": \"en\"}\n");
  const json result = desk.object("tokenizer info --tokenizer tokenizer.json --json --input a.jsonl");
  EXPECT_EQ(result["vocab_size"], 280);
  EXPECT_EQ(result["end_of_text_id"], 0);
  EXPECT_EQ(result["special_tokens"], json::array({"<|endoftext|>"}));
  const json& row = result["fertility"].at(0);
  size_t tokens = 0;
  for (const char* text : {"the cat sat", "mat"})
    tokens += desk.object("tokenizer encode --tokenizer tokenizer.json", {"--text", text})["ids"].size();
  EXPECT_EQ(row["documents"], 2);
  EXPECT_EQ(row["language"], "en");
  EXPECT_EQ(row["bytes"], 14);
  EXPECT_EQ(row["words"], 4);
  EXPECT_EQ(row["tokens"], tokens);
  EXPECT_NEAR(row["bytes_per_token"].get<double>(), 14.0 / static_cast<double>(tokens), 1e-9);
  EXPECT_FALSE(desk.object("tokenizer info --tokenizer tokenizer.json --json").contains("fertility"));
  EXPECT_TRUE(
      has(desk.strata("tokenizer info --tokenizer tokenizer.json --input a.jsonl").out, "280 tokens"));
  desk.refused("tokenizer info --tokenizer nowhere.json");
}

}  // namespace

Contracts tokenizer_options() {
  return {{"tokenizer train --input", train},
          {"tokenizer train --vocab-size", train},
          {"tokenizer train --output", train},
          {"tokenizer train --force", train},
          {"tokenizer train --min-frequency", train},
          {"tokenizer train --special", special},
          {"tokenizer train --pattern", pattern},
          {"tokenizer train --model", model},
          {"tokenizer train --json", train},
          {"tokenizer encode --tokenizer", encode},
          {"tokenizer encode --pattern", rank_pattern},
          {"tokenizer encode --jsonl", encode},
          {"tokenizer encode --text", encode},
          {"tokenizer encode --add-special-tokens", add_special_tokens},
          {"tokenizer decode --tokenizer", encode},
          {"tokenizer decode --pattern", rank_pattern},
          {"tokenizer decode --jsonl", encode},
          {"tokenizer decode --skip-special-tokens", encode},
          {"tokenizer info --tokenizer", info},
          {"tokenizer info --pattern", rank_pattern},
          {"tokenizer info --input", info},
          {"tokenizer info --json", info}};
}

}  // namespace strata::contracts
