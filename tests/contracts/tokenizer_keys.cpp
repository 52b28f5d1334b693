// Contracts of [tokenizer], checked by the ids in a run's token files and by the vocabularies of tokenizers
// trained for it.
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "contracts/contract.h"
#include "contracts/lab.h"
#include "data/tokenizer/tokenizer.h"
#include "fixtures/byte_tokenizer.h"

namespace strata::contracts {
namespace {

// The tokenizer of a run.
data::Tokenizer tokenizer_of(const Seen& run) {
  return data::Tokenizer::load(run.folder / "final/tokenizer.json");
}
Sets on(const Lab& lab, const std::string& file) {
  return {"data.train=" + lab.list({file}), "data.valid_fraction=0", "training.steps=1"};
}
data::Tokenizer trained(Lab& lab, const std::string& text, const Sets& sets) {
  lab.put("small.txt", text);
  return tokenizer_of(lab.run(on(lab, "small.txt") + sets));
}
std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

void path(const std::string&) {
  Lab lab;
  lab.text();
  lab.put("other.txt", repeated("quite another text, of other words\n", 50));
  const Path file = lab.path("own.json");
  ASSERT_EQ(strata(lab.path("x"), {"tokenizer", "train", "--input", lab.path("other.txt").string(),
                                   "--vocab-size", "270", "--output", file.string()})
                .code,
            0);
  const Seen run = lab.run(on(lab, "corpus.jsonl") + Sets{"tokenizer.path=\"" + file.string() + "\""});
  EXPECT_EQ(read_file(run.folder / "final/tokenizer.json"), read_file(file));
  const auto tokenizer = data::Tokenizer::load(file);
  std::vector<int32_t> wanted;
  const std::string records = read_file(lab.path("corpus.jsonl"));
  for (size_t at = 0; at < records.size(); at = records.find('\n', at) + 1) {
    tokenizer.encode(
        parse_json<json>(records.substr(at, records.find('\n', at) - at))["text"].get<std::string>(), wanted);
    wanted.push_back(*tokenizer.end_of_text_id());
  }
  EXPECT_EQ(lab.ids_of(run), wanted);
}

void add_eos(const std::string&) {
  Lab lab;
  lab.text(40);
  std::vector<std::vector<int32_t>> ids;
  for (const char* value : {"false", "true"})
    ids.push_back(
        lab.ids_of(lab.run(on(lab, "corpus.jsonl") + Sets{std::string("tokenizer.add_eos=") + value})));
  EXPECT_EQ(std::count(ids[0].begin(), ids[0].end(), 0), 0);
  EXPECT_EQ(std::count(ids[1].begin(), ids[1].end(), 0), 40) << "one per document";
  std::erase(ids[1], 0);
  EXPECT_EQ(ids[0], ids[1]);
}

void add_bos(const std::string&) {
  Lab lab;
  lab.text(40);
  // A tokenizer that declares a token at the beginning of a text.
  ASSERT_EQ(strata(lab.path("x"), {"tokenizer", "train", "--input", lab.path("corpus.txt").string(),
                                   "--vocab-size", "280", "--special", "<|endoftext|>", "--special", "<s>",
                                   "--output", lab.path("own.json").string()})
                .code,
            0);
  json file = parse_json<json>(read_file(lab.path("own.json")));
  file["post_processor"] = parse_json<json>(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}})");
  lab.put("own.json", dump_json(file));
  const Sets sets =
      on(lab, "corpus.jsonl") + Sets{"tokenizer.path=\"" + lab.path("own.json").string() + "\""};
  const auto without = lab.ids_of(lab.run(sets + Sets{"tokenizer.add_bos=false"}));
  auto with = lab.ids_of(lab.run(sets + Sets{"tokenizer.add_bos=true"}));
  EXPECT_EQ(std::count(without.begin(), without.end(), 1), 0);
  EXPECT_EQ(std::count(with.begin(), with.end(), 1), 40);
  for (size_t i = 0; i < with.size(); ++i) ASSERT_EQ(with[i] == 1, i == 0 || with[i - 1] == 0) << i;
  std::erase(with, 1);
  EXPECT_EQ(with, without);
  EXPECT_TRUE(
      has(lab.refusal(on(lab, "corpus.jsonl") + Sets{"tokenizer.add_bos=true"}), "tokenizer.add_bos"));
}

// A run on two documents, the first of which contains the text "</s>". Ids are bytes, followed by <s>, </s>
// and <end>.
struct Bytes {
  Lab lab;
  Sets sets;
  Bytes() {
    lab.put("own.json", data::byte_tokenizer_json({.special = {"<s>", "</s>", "<end>"}}));
    lab.put("two.jsonl", "{\"text\": \"a</s>b, and some more of it\"}\n{\"text\": \"cd\"}\n");
    sets = on(lab, "two.jsonl") + Sets{"tokenizer.path=\"" + lab.path("own.json").string() + "\""};
  }
  std::vector<int32_t> ids(const Sets& more) { return lab.ids_of(lab.run(sets + more)); }
  std::vector<int32_t> wanted(const std::vector<int32_t>& before, std::vector<int32_t> mark, int32_t end) {
    std::vector<int32_t> out;
    for (const std::string document : {"a</s>b, and some more of it", "cd"}) {
      out.insert(out.end(), before.begin(), before.end());
      for (size_t at = 0; at < document.size(); ++at) {
        if (!mark.empty() && document.compare(at, 4, "</s>") == 0) {
          out.insert(out.end(), mark.begin(), mark.end());
          at += 3;
        } else {
          out.push_back(document[at]);
        }
      }
      out.push_back(end);
    }
    return out;
  }
};

void eos(const std::string&) {
  Bytes bytes;
  const std::vector<int32_t> mark{257};
  EXPECT_EQ(bytes.ids({}), bytes.wanted({}, mark, 257)) << "found by its name";
  EXPECT_EQ(bytes.ids({"tokenizer.eos=\"auto\""}), bytes.wanted({}, mark, 257));
  EXPECT_EQ(bytes.ids({"tokenizer.eos=\"<end>\""}), bytes.wanted({}, mark, 258));
  const Seen run = bytes.lab.run(bytes.sets + Sets{"tokenizer.eos=256"});
  EXPECT_EQ(bytes.lab.ids_of(run), bytes.wanted({}, mark, 256));
  EXPECT_EQ(run.config()["eos_token_id"], 256);
  const json named = parse_json<json>(read_file(run.folder / "final/tokenizer_config.json"));
  EXPECT_EQ(named["eos_token"], "<s>");
  // The declaration in tokenizer_config.json, unless the key overrides it.
  bytes.lab.put("tokenizer_config.json", R"({"eos_token": "<end>"})");
  EXPECT_EQ(bytes.ids({}), bytes.wanted({}, mark, 258));
  EXPECT_EQ(bytes.ids({"tokenizer.eos=\"</s>\""}), bytes.wanted({}, mark, 257));
  EXPECT_TRUE(has(bytes.lab.refusal(bytes.sets + Sets{"tokenizer.eos=\"<nowhere>\""}), "tokenizer.eos"));
  EXPECT_TRUE(has(bytes.lab.refusal(bytes.sets + Sets{"tokenizer.eos=259"}), "tokenizer.eos"));
  EXPECT_TRUE(has(bytes.lab.refusal(bytes.sets + Sets{"tokenizer.eos=1.5"}), "tokenizer.eos"));
}

void bos(const std::string&) {
  Bytes bytes;
  const std::vector<int32_t> mark{257};
  EXPECT_TRUE(has(bytes.lab.refusal(bytes.sets + Sets{"tokenizer.add_bos=true"}), "tokenizer.bos"));
  EXPECT_EQ(bytes.ids({"tokenizer.bos=\"<s>\""}), bytes.wanted({}, mark, 257)) << "add_bos is false";
  EXPECT_EQ(bytes.ids({"tokenizer.bos=\"<s>\"", "tokenizer.add_bos=true"}), bytes.wanted({256}, mark, 257));
  const Seen run = bytes.lab.run(bytes.sets + Sets{"tokenizer.bos=258", "tokenizer.add_bos=true"});
  EXPECT_EQ(bytes.lab.ids_of(run), bytes.wanted({258}, mark, 257));
  // Prompts of the model begin with it too.
  EXPECT_EQ(run.config()["bos_token_id"], 258);
  EXPECT_EQ(tokenizer_of(run).encode_prompt("a"), (std::vector<int32_t>{258, 'a'}));
  bytes.lab.put("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_EQ(bytes.ids({"tokenizer.add_bos=true"}), bytes.wanted({256}, mark, 257));
  EXPECT_TRUE(has(bytes.lab.refusal(bytes.sets + Sets{"tokenizer.bos=\"<nowhere>\""}), "tokenizer.bos"));
}

void special_in_text(const std::string&) {
  Bytes bytes;
  EXPECT_EQ(bytes.ids({}), bytes.wanted({}, {257}, 257));
  EXPECT_EQ(bytes.ids({"tokenizer.special_in_text=\"token\""}), bytes.wanted({}, {257}, 257));
  EXPECT_EQ(bytes.ids({"tokenizer.special_in_text=\"text\""}), bytes.wanted({}, {}, 257));
  EXPECT_TRUE(has(bytes.lab.refusal(bytes.sets + Sets{"tokenizer.special_in_text=\"letters\""}), "refuse"));
  try {
    bytes.ids({"tokenizer.special_in_text=\"refuse\""});
    ADD_FAILURE() << "not refused";
  } catch (const DataError& error) {
    EXPECT_TRUE(has(error.what(), "two.jsonl:1")) << error.what();
    EXPECT_TRUE(has(error.what(), "</s>")) << error.what();
  }
}

void vocab_size(const std::string&) {
  Lab lab;
  const std::string text = lab.text();
  EXPECT_EQ(trained(lab, text, {"tokenizer.train.vocab_size=271"}).vocab_size(), 271);
  EXPECT_EQ(trained(lab, text, {"tokenizer.train.vocab_size=\"auto\""}).vocab_size(), 300) << "the model's";
  EXPECT_TRUE(has(lab.refusal(on(lab, "small.txt") + Sets{"tokenizer.train.vocab_size=301"}), "vocab"));
}

void min_frequency(const std::string&) {
  Lab lab;
  const std::string text =
      repeated("zq\n", 3) + repeated("xw\n", 2) + repeated("long enough to train on\n", 9);
  for (const int64_t least : {2, 3, 4}) {
    const auto tokenizer = trained(lab, text, {"tokenizer.train.min_frequency=" + std::to_string(least)});
    EXPECT_EQ(tokenizer.token_to_id("zq").has_value(), least <= 3) << least;
    EXPECT_EQ(tokenizer.token_to_id("xw").has_value(), least <= 2) << least;
  }
}

// GPT-2 does not split a number; Llama 3 splits it into groups of at most three digits.
void pattern(const std::string&) {
  Lab lab;
  const std::string text = repeated("123456\n", 30);
  EXPECT_TRUE(trained(lab, text, {"tokenizer.train.pattern=\"gpt2\""}).token_to_id("123456"));
  const auto tokenizer = trained(lab, text, {"tokenizer.train.pattern=\"llama3\""});
  EXPECT_TRUE(tokenizer.token_to_id("123") && tokenizer.token_to_id("456"));
  EXPECT_FALSE(tokenizer.token_to_id("1234") || tokenizer.token_to_id("123456"));
  EXPECT_TRUE(has(lab.refusal(on(lab, "small.txt") + Sets{"tokenizer.train.pattern=\"gpt3\""}), "gpt3"));
}

void special(const std::string&) {
  Lab lab;
  const auto tokenizer = trained(lab, repeated("a <mark> in a text that is long enough\n", 9),
                                 {"tokenizer.train.special=[\"<|endoftext|>\", \"<mark>\"]"});
  EXPECT_EQ(tokenizer.token_to_id("<|endoftext|>"), 0);
  EXPECT_EQ(tokenizer.token_to_id("<mark>"), 1);
  EXPECT_TRUE(tokenizer.is_special(0) && tokenizer.is_special(1) && !tokenizer.is_special(2));
  const auto ids = tokenizer.encode("a <mark> in");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 1);
}

}  // namespace

Contracts tokenizer_keys() {
  return {{"tokenizer.path", path},
          {"tokenizer.add_bos", add_bos},
          {"tokenizer.add_eos", add_eos},
          {"tokenizer.eos", eos},
          {"tokenizer.bos", bos},
          {"tokenizer.special_in_text", special_in_text},
          {"tokenizer.train.vocab_size", vocab_size},
          {"tokenizer.train.min_frequency", min_frequency},
          {"tokenizer.train.pattern", pattern},
          {"tokenizer.train.special", special}};
}

}  // namespace strata::contracts
