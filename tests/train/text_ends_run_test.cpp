// Begin- and end-of-text tokens, from a model directory through a run to exported files.
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "cli/actions.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokens/token_corpus.h"
#include "fixtures/byte_tokenizer.h"
#include "fixtures/tiny_run.h"
#include "interop/gguf.h"

namespace strata::training {
namespace {

using nlohmann::json;

// A Llama with a byte tokenizer plus <s>, </s>, <end> and <turn>; the model has `vocab` rows.
class EndsOfTexts : public ::testing::Test {
 protected:
  void make_model(int64_t vocab, const data::ByteTokenizer& tokenizer) {
    tiny_.train({"model.vocab_size=" + std::to_string(vocab), "training.steps=1",
                 "data.train=[\"" + tokens(vocab) + "\"]"},
                "made");
    std::filesystem::rename(tiny_.folder("made") / "final", model());
    std::filesystem::remove(model() / "checksums.json");
    put_file(model() / "tokenizer.json", data::byte_tokenizer_json(tokenizer));
  }
  std::string tokens(int64_t vocab) {
    auto ids = tiny_tokens(600);
    for (uint16_t& id : ids) id = static_cast<uint16_t>(id % vocab);
    put_tokens(tiny_.path("made.bin"), ids, vocab);
    return tiny_.path("made.bin").string();
  }
  Path model() const { return tiny_.path("model"); }
  json read(const Path& path) const { return parse_json<json>(read_file(path)); }
  void change(const std::string& file, const json& with) {
    json all = std::filesystem::exists(model() / file) ? read(model() / file) : json::object();
    all.update(with);
    put_file(model() / file, dump_json(all));
  }
  // Trains from the model on texts; returns the run's folder.
  Path run(const std::string& texts, const Sets& sets = {}) {
    put_file(tiny_.path("texts.jsonl"), texts);
    const std::string name = "run-" + std::to_string(++runs_);
    const std::string toml = "[run]\nfolder = \"" + tiny_.folder(name).string() + "\"\n[model]\nfrom = \"" +
                             model().string() + "\"\n[data]\ntrain = [\"" +
                             tiny_.path("texts.jsonl").string() +
                             "\"]\nvalid_fraction = 0.0\n[training]\nsteps = 1\nsequence_length = 16\n"
                             "global_batch_size = 2\n[eval]\nsample_tokens = 0\n[device]\nthreads = 1\n";
    tiny_.train_with(RunOptions{.config = config::parse_run_config(toml, "RUN.toml", sets)});
    return tiny_.folder(name);
  }
  std::vector<int32_t> ids_of(const Path& run) {
    for (const auto& entry : std::filesystem::directory_iterator(run / "data")) {
      if (entry.path().extension() != ".bin") continue;
      const data::TokenFile file(entry.path());
      std::vector<int32_t> ids(static_cast<size_t>(file.tokens()));
      file.read(0, file.tokens(), ids.data());
      return ids;
    }
    return {};
  }
  std::string texts() const {
    std::string lines;
    for (int i = 0; i < 20; ++i)
      lines += "{\"text\": \"some words of document " + std::to_string(i) + "\"}\n";
    return lines;
  }

  TinyRun tiny_;
  int runs_ = 0;
  const data::ByteTokenizer marks_{.special = {"<s>", "</s>", "<end>", "<turn>"}};
};

TEST_F(EndsOfTexts, SeveralEndsAreKept) {
  make_model(260, marks_);
  change("config.json", {{"bos_token_id", 256}, {"eos_token_id", {257, 258}}});
  std::filesystem::remove(model() / "generation_config.json");
  const auto expect_ends = [&](const Path& folder, const json& of_config, const json& of_generation) {
    EXPECT_EQ(read(folder / "config.json")["eos_token_id"], of_config) << folder;
    EXPECT_EQ(read(folder / "generation_config.json")["eos_token_id"], of_generation) << folder;
  };
  testing::internal::CaptureStdout();
  cli::run_export({.source = model().string(), .target = tiny_.path("out")});
  expect_ends(tiny_.path("out"), {257, 258}, {257, 258});
  // Generation may have more of them; the run's documents end with the token named by the tokenizer's files.
  change("generation_config.json", {{"eos_token_id", {257, 258, 259}}});
  cli::run_import({.source = model().string(), .target = tiny_.path("imported")});
  expect_ends(tiny_.path("imported") / "checkpoints/step-00000000", {257, 258}, {257, 258, 259});
  testing::internal::GetCapturedStdout();
  const Path same = run(texts());
  expect_ends(same / "final", {257, 258}, {257, 258, 259});
  EXPECT_EQ(std::ranges::count(ids_of(same), 257), 20);
  put_file(model() / "tokenizer_config.json", R"({"eos_token": "<turn>"})");
  const Path other = run(texts());
  expect_ends(other / "final", {259, 257, 258}, {257, 258, 259});
  EXPECT_EQ(std::ranges::count(ids_of(other), 259), 20);
  EXPECT_EQ(data::Tokenizer::load(other / "final/tokenizer.json").end_of_text_id(), 259);
  // The key names another one, and the run's checkpoint keeps it.
  const Path named = run(texts(), {"tokenizer.eos=\"<end>\""});
  EXPECT_EQ(std::ranges::count(ids_of(named), 258), 20);
  EXPECT_EQ(data::Tokenizer::load(named / "final/tokenizer.json").end_of_text_id(), 258);
}

// A tokenizer.json elsewhere without other files: the declarations of the model directory apply.
TEST_F(EndsOfTexts, ComeFromTheModelForATokenizerWithoutFiles) {
  make_model(260, marks_);
  put_file(model() / "tokenizer_config.json", R"({"eos_token": "<end>", "bos_token": "<turn>"})");
  std::filesystem::create_directories(tiny_.path("elsewhere"));
  put_file(tiny_.path("elsewhere/tokenizer.json"), read_file(model() / "tokenizer.json"));
  const Path made =
      run(texts(), {"tokenizer.path=\"" + tiny_.path("elsewhere/tokenizer.json").string() + "\"",
                    "tokenizer.add_bos=true"});
  const auto ids = ids_of(made);
  EXPECT_EQ(ids.front(), 259);
  EXPECT_EQ(std::ranges::count(ids, 259), 20);
  EXPECT_EQ(std::ranges::count(ids, 258), 20);
}

TEST_F(EndsOfTexts, OneTokenForBothKeepsDocumentsWhole) {
  make_model(257, {});
  put_file(model() / "tokenizer_config.json",
           R"({"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"})");
  const Path made = run(texts(), {"tokenizer.add_bos=true"});
  EXPECT_EQ(std::ranges::count(ids_of(made), 256), 40);
  for (const auto& entry : std::filesystem::directory_iterator(made / "data")) {
    if (entry.path().extension() == ".bin") {
      EXPECT_EQ(data::open_token_corpus({entry.path().string()}).document_ends().size(), 20u);
    }
  }
}

// Gemma 3's tokenizer has one entry more than its text-only model has rows.
TEST_F(EndsOfTexts, ATokenBeyondTheModelIsRefusedOnlyInTextsThatContainIt) {
  make_model(258, {.special = {"</s>", "<pad>", "<image>"}});
  EXPECT_EQ(std::ranges::count(ids_of(run(texts())), 256), 20);
  try {
    run(texts() + "{\"text\": \"an <image> in it\"}\n");
    ADD_FAILURE() << "not refused";
  } catch (const DataError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("texts.jsonl:21"), std::string::npos) << message;
    EXPECT_NE(message.find("<image>"), std::string::npos) << message;
  }
  run(texts() + "{\"text\": \"an <image> in it\"}\n", {"tokenizer.special_in_text=\"text\""});
  // The end-of-text token must not be beyond the model's rows, nor a token that any text may contain.
  EXPECT_THROW(run(texts(), {"tokenizer.eos=\"<image>\""}), ConfigError);
  put_file(tiny_.path("texts.txt"), "some text to look at, long enough for a window");
  testing::internal::CaptureStdout();
  EXPECT_EQ(cli::run_evaluation({.model = model().string(),
                                 .text = {tiny_.path("texts.txt").string()},
                                 .sequence_length = 16,
                                 .sets = {"device.threads=1"},
                                 .json = true}),
            0);
  cli::run_export({.source = model().string(), .target = tiny_.path("model.gguf"), .format = "gguf"});
  testing::internal::GetCapturedStdout();
  json wide = read(model() / "tokenizer.json");
  wide["model"]["vocab"]["zz"] = 260;
  put_file(model() / "tokenizer.json", dump_json(wide));
  EXPECT_THROW(run(texts()), ConfigError);
}

}  // namespace
}  // namespace strata::training
