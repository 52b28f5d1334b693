// Mistakes of users and failures of disks, each with its message and exit code.
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "fixtures/faulty_file_system.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

struct Refusal {
  int code = 0;
  std::string message;
};

Refusal refusal_with(const TinyRun& tiny, const RunOptions& options) {
  try {
    tiny.train_with(options);
  } catch (const Error& error) {
    return {exit_code(error.kind()), error.what()};
  }
  return {};
}
Refusal refusal_of(const TinyRun& tiny, const std::vector<std::string>& sets) {
  return refusal_with(tiny, RunOptions{.config = tiny.config(sets)});
}

void expect_contains(const Refusal& refusal, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(refusal.code, code) << refusal.message;
  for (const std::string& part : parts)
    EXPECT_NE(refusal.message.find(part), std::string::npos)
        << "\"" << part << "\" is not in: " << refusal.message;
}

std::string quoted(const Path& path) {
  return "[\"" + path.string() + "\"]";
}

void flip_bit(const Path& path, double where) {
  std::string bytes = read_file(path);
  bytes[static_cast<size_t>(where * static_cast<double>(bytes.size()))] ^= 0x10;
  put_file(path, bytes);
}
void cut(const Path& path) {
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
}

TEST(BadInput, AllErrorsOfAConfigurationTogether) {
  const TinyRun tiny;
  expect_contains(refusal_of(tiny, {"training.stepz=5", "optimizer.lr=-1", "training.micro_batch_size=3"}), 2,
                  {"training.stepz", "did you mean \"steps\"", "optimizer.lr", "does not divide"});
}

TEST(BadInput, ImpossibleSizes) {
  const TinyRun tiny;
  expect_contains(refusal_of(tiny, {"model.num_attention_heads=3"}), 2, {"model.family", "head"});
  expect_contains(refusal_of(tiny, {"model.num_key_value_heads=3"}), 2, {"model.family", "3"});
  expect_contains(refusal_of(tiny, {"model.family=\"lama3\""}), 2, {"lama3", "llama3"});
  expect_contains(refusal_of(tiny, {"training.sequence_length=65"}), 2, {"training.sequence_length", "64"});
  expect_contains(refusal_of(tiny, {"memory.budget=\"100kB\""}), 2, {"memory.budget"});
  expect_contains(
      refusal_of(tiny, {"training.sequence_length=32", "data.train=" + quoted(tiny.path("short.bin"))}), 2,
      {"short.bin"});
}

// Unsupported settings are rejected, never ignored.
TEST(BadInput, NotYet) {
  const TinyRun tiny;
  for (const char* set : {"precision.residual=\"bf16\"", "memory.offload=\"host\"",
                          "parallel.backend=\"nccl\"", "log.prometheus=\":9000\""}) {
    const std::string key = std::string(set).substr(0, std::string(set).find('='));
    expect_contains(refusal_of(tiny, {set}), 2, {key, "not yet"});
  }
  expect_contains(refusal_of(tiny, {"checkpoint.keep_every=\"10min\""}), 2,
                  {"checkpoint.keep_every", "steps"});
  expect_contains(refusal_of(tiny, {"model.init=\"random\""}), 2, {"model.init", "model.from"});
  expect_contains(refusal_of(tiny, {"model.preset=\"olmo-1b\"", "model.mup_base_hidden_size=128"}), 2,
                  {"model.mup_base_hidden_size", "tie_word_embeddings"});
  expect_contains(refusal_of(tiny, {"model.preset=\"pythia-14m\"", "model.init_std=0.01"}), 2,
                  {"model.init_std", "small_wang"});
  expect_contains(refusal_of(tiny, {"optimizer.group=[{match=\"*nrom*\", lr_scale=0.1}]"}), 2,
                  {"*nrom*", "matches no tensor", "similar names are", "model.norm.weight"});
  expect_contains(refusal_of(tiny, {"optimizer.group=[{match=\"*qproj*\", lr_scale=0.1}]"}), 2,
                  {"*qproj*", "self_attn.q_proj.weight"});
  expect_contains(refusal_of(tiny, {"optimizer.group=[{match=\"xyz\", lr_scale=0.1}]"}), 2,
                  {"xyz", "two of the names are", "model.embed_tokens.weight"});
}

TEST(BadInput, Corpora) {
  const TinyRun tiny;
  expect_contains(refusal_of(tiny, {"data.train=" + quoted(tiny.path("nowhere*.txt"))}), 2, {"nowhere"});
  put_file(tiny.path("empty.txt"), "");
  expect_contains(refusal_of(tiny, {"data.train=" + quoted(tiny.path("empty.txt"))}), 3, {"empty.txt"});
  put_file(tiny.path("empty.bin"), "");
  expect_contains(refusal_of(tiny, {"data.train=" + quoted(tiny.path("empty.bin"))}), 3, {"empty.bin"});
  put_tokens(tiny.path("short.bin"), tiny_tokens(10));
  expect_contains(refusal_of(tiny, {"data.train=" + quoted(tiny.path("short.bin"))}), 2, {"10 tokens"});
  std::filesystem::create_directory(tiny.path("mixed"));
  put_tokens(tiny.path("mixed/a.bin"), tiny_tokens(1000));
  put_file(tiny.path("mixed/b.txt"), "text");
  expect_contains(refusal_of(tiny, {"data.train=[\"" + tiny.path("mixed").string() + "\"]"}), 2,
                  {"data.train", "b.txt", "data.source"});
  put_file(tiny.path("bad.jsonl"), "{\"text\": \"a\"}\n{\"txet\": \"b\"}\n");
  expect_contains(refusal_of(tiny, {"data.train=" + quoted(tiny.path("bad.jsonl"))}), 3, {"bad.jsonl:2"});
}

// transformers rejects a Llama model whose width is not a multiple of its heads, so final/ would be useless.
TEST(BadInput, AModelThatTransformersCannotLoad) {
  const TinyRun tiny;
  expect_contains(refusal_of(tiny, {"model.hidden_size=66"}), 2,
                  {"model.family", "66", "4 heads", "transformers"});
  expect_contains(refusal_of(tiny, {"model.hidden_size=66", "model.head_dim=16"}), 2, {"66", "transformers"});
  EXPECT_EQ(refusal_of(tiny, {"model.hidden_size=66", "model.head_dim=16", "model.family=\"qwen3\""}).code,
            0);
}

// The available metrics are known before the first step, even those that depend on the data.
TEST(BadInput, ABestMetricThatIsNeverMeasured) {
  const TinyRun tiny;
  expect_contains(refusal_of(tiny, {"checkpoint.best_metric=\"eval/valid/los\""}), 2,
                  {"checkpoint.best_metric", "did you mean", "eval/valid/loss"});
  expect_contains(refusal_of(tiny, {"checkpoint.best_metric=\"grad_norm\""}), 2,
                  {"checkpoint.best_metric", "grad_norm"});
  // Token files have no held-out part unless a fraction is given, and do not record the size of their text.
  expect_contains(refusal_of(tiny, {"checkpoint.best_metric=\"eval/valid/bits_per_byte\""}), 2,
                  {"checkpoint.best_metric", "expected one of loss"});
  expect_contains(refusal_of(tiny, {"checkpoint.keep_best=2"}), 2,
                  {"checkpoint.best_metric", "eval/valid/loss"});
  EXPECT_FALSE(std::filesystem::exists(tiny.folder() / "metrics.jsonl"));
  EXPECT_EQ(refusal_of(tiny, {"checkpoint.keep_best=2", "checkpoint.best_metric=\"loss\""}).code, 0);
}

void put_meta(const Path& tokens, nlohmann::json meta) {
  meta["dtype"] = "u16";
  put_file(Path(tokens).replace_extension(".json"), dump_json(meta));
}

// The configuration names no tokenizer, and the files name several.
TEST(BadInput, TokensOfSeveralTokenizers) {
  const TinyRun tiny;
  const Path train = tiny.path("train.bin"), other = tiny.path("other.bin");
  put_tokens(other, tiny_tokens(3000, 9));
  const std::vector<std::vector<std::string>> ways{
      {"data.train=[\"" + train.string() + "\", \"" + other.string() + "\"]"},
      {"data.valid=" + quoted(other)},
      {"eval.set=[{name=\"held\", path=" + quoted(other) + "}]"}};
  const std::string a(16, 'a'), b(16, 'b');
  put_meta(train, {{"tokenizer_hash", a}, {"end_of_text_id", 0}, {"vocab_size", 300}});
  for (const auto& sets : ways) {
    put_meta(other, {{"tokenizer_hash", b}, {"end_of_text_id", 0}});
    expect_contains(refusal_of(tiny, sets), 3, {"other.bin", "train.bin", a, b});
    put_meta(other, {{"tokenizer_hash", a}, {"end_of_text_id", 7}});
    expect_contains(refusal_of(tiny, sets), 3, {"other.bin", "end-of-text id 7"});
    put_meta(other, {{"tokenizer_hash", a}, {"end_of_text_id", 0}, {"vocab_size", 301}});
    expect_contains(refusal_of(tiny, sets), 3, {"other.bin", "301", "300"});
    // Hashes of other tools cannot be compared, and a smaller vocabulary may be a subset.
    put_meta(other, {{"tokenizer_hash", "gpt2"}, {"end_of_text_id", 0}, {"vocab_size", 299}});
    EXPECT_EQ(refusal_of(tiny, sets).code, 0);
    std::filesystem::remove_all(tiny.folder());
  }
}

// datatrove's files name their tokenizer.
TEST(BadInput, TokensOfSeveralTokenizersOfDatatrove) {
  const TinyRun tiny;
  const auto put = [&](const std::string& name, const std::string& tokenizer) {
    const auto ids = tiny_tokens(3000, 9);
    put_file(tiny.path(name), std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 2));
    put_file(tiny.path(name + ".metadata"), tokenizer + "|2\n3000\n3 kT");
  };
  put("a.ds", "gpt2");
  put("b.ds", "llama");
  put("c.ds", "gpt2");
  const auto with = [&](const char* valid) {
    return refusal_of(tiny, {"data.pack=\"stream\"", "data.train=" + quoted(tiny.path("a.ds")),
                             "data.valid=" + quoted(tiny.path(valid))});
  };
  expect_contains(with("b.ds"), 3, {"a.ds", "b.ds", "gpt2", "llama"});
  EXPECT_EQ(with("c.ds").code, 0);
}

// If the ends of documents are unknown, a run that should separate them would train on a plain stream.
TEST(BadInput, DocumentsWithoutEnds) {
  const TinyRun tiny;
  put_meta(tiny.path("train.bin"), {{"vocab_size", 300}});
  for (const char* pack : {"documents", "best_fit"})
    expect_contains(refusal_of(tiny, {"data.pack=\"" + std::string(pack) + "\""}), 2,
                    {"data.pack", pack, "train.bin", "end_of_text_id", "stream"});
  EXPECT_EQ(refusal_of(tiny, {"data.pack=\"stream\""}).code, 0);
  std::filesystem::remove_all(tiny.folder());
  // As a default it only causes a warning.
  set_log_level(LogLevel::kWarning);
  testing::internal::CaptureStderr();
  const int code = refusal_of(tiny, {}).code;
  const std::string logged = testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::kError);
  EXPECT_EQ(code, 0);
  EXPECT_NE(logged.find("data.pack"), std::string::npos) << logged;
  EXPECT_NE(logged.find("train.bin"), std::string::npos) << logged;
}

TEST(BadInput, FillInTheMiddleNeedsItsTokens) {
  const TinyRun tiny;
  expect_contains(refusal_of(tiny, {"data.fim_rate=0.5"}), 2, {"data.fim_rate", "tokenizer.path"});
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "some words " + std::to_string(i * 7 % 100) + "\n";
  put_file(tiny.path("words.txt"), text);
  const std::string train = "data.train=" + quoted(tiny.path("words.txt"));
  expect_contains(refusal_of(tiny, {train, "data.fim_rate=0.5"}), 2,
                  {"<fim_prefix>", "tokenizer.train.special"});
  const std::string special =
      "tokenizer.train.special=[\"<|endoftext|>\", \"<fim_prefix>\", \"<fim_middle>\", \"<fim_suffix>\"]";
  EXPECT_EQ(tiny.train({train, special, "data.fim_rate=0.5"}, "with").end, RunEnd::kFinished);
  EXPECT_EQ(tiny.train({train, special}, "without").end, RunEnd::kFinished);
  EXPECT_NE(metrics_of(tiny.folder("with")).steps, metrics_of(tiny.folder("without")).steps);
  // The order of samples must not change unnoticed.
  const RunOptions changed{.config = tiny.config({train, special, "data.fim_rate=0.25"}, "with")};
  expect_contains(refusal_with(tiny, changed), 2, {"data.fim_rate", "0.5", "0.25", "--accept-changes"});
}

TEST(BadInput, AnyBytesAreText) {
  const TinyRun tiny;
  std::string bytes;
  for (int i = 0; i < 40000; ++i)
    bytes += static_cast<char>(philox({1, 9}, static_cast<uint64_t>(i))[0] & 0xff);
  bytes += std::string(1000, '\0') + "\xff\xfe\xc0\x80";
  put_file(tiny.path("bytes.txt"), bytes);
  const std::string train = "data.train=" + quoted(tiny.path("bytes.txt"));
  EXPECT_EQ(tiny.train({train}).end, RunEnd::kFinished);
  EXPECT_EQ(metrics_of(tiny.folder()).steps.size(), 6u);
}

TEST(BadInput, ATokenBeyondTheVocabulary) {
  const TinyRun tiny;
  auto ids = tiny_tokens(6000);
  ids[4321] = 300;
  put_tokens(tiny.path("train.bin"), ids);
  // Found before the first step, even if its sample comes much later or the file was valid before.
  expect_contains(refusal_of(tiny, {"data.epochs=1", "training.steps=100"}), 3,
                  {"train.bin", "token 4321 is 300"});
  EXPECT_FALSE(std::filesystem::exists(tiny.folder() / "metrics.jsonl"));
  put_tokens(tiny.path("train.bin"), tiny_tokens(6000));
  EXPECT_EQ(tiny.train().step, 6);
  put_tokens(tiny.path("train.bin"), ids);
  expect_contains(refusal_of(tiny, {}), 3, {"token 4321 is 300"});
}

class BadModel : public testing::Test {
 protected:
  BadModel() {
    tiny_.train({}, "made");
    weights_ = model_ / "model.safetensors";
  }
  // Starts a run from the model.
  Refusal start() const {
    std::string toml = tiny_.toml("tuned");
    const size_t begin = toml.find("family ="), end = toml.find("[data]");
    toml.replace(begin, end - begin, "from = \"" + model_.string() + "\"\n");
    std::filesystem::remove_all(tiny_.folder("tuned"));
    return refusal_with(tiny_, RunOptions{.config = config::parse_run_config(toml, "RUN.toml")});
  }
  TinyRun tiny_;
  Path model_ = tiny_.folder("made") / "final";
  Path weights_;
};

TEST_F(BadModel, ValidOnesContinueTraining) {
  EXPECT_EQ(start().code, 0) << start().message;
  const auto before = metrics_of(tiny_.folder("made"));
  EXPECT_LT(metrics_of(tiny_.folder("tuned")).loss[0], before.loss[0] - 0.1) << "it starts from the weights";
}

// Training has no dropout: a warning names the values, and config.json keeps them for other programs.
TEST_F(BadModel, DropoutIsNamedAndKept) {
  auto config = parse_json<nlohmann::ordered_json>(read_file(model_ / "config.json"));
  config["attention_dropout"] = 0.25;
  put_file(model_ / "config.json", dump_json(config));
  set_log_level(LogLevel::kWarning);
  testing::internal::CaptureStderr();
  EXPECT_EQ(start().code, 0);
  const std::string logged = testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::kError);
  EXPECT_NE(logged.find("attention_dropout = 0.25"), std::string::npos) << logged;
  EXPECT_NE(logged.find("without dropout"), std::string::npos) << logged;
  for (const char* folder : {"final", "checkpoints/step-00000006"}) {
    const auto written =
        parse_json<nlohmann::json>(read_file(tiny_.folder("tuned") / folder / "config.json"));
    EXPECT_EQ(written["attention_dropout"], 0.25) << folder;
  }
}

TEST_F(BadModel, Damage) {
  const std::string good = read_file(weights_);
  cut(weights_);
  expect_contains(start(), 3, {"model.safetensors"});
  put_file(weights_, good.substr(0, 6));
  expect_contains(start(), 3, {"model.safetensors"});
  put_file(weights_, good);
  flip_bit(weights_, 8.0 / static_cast<double>(good.size()) + 0.001);  // in the header
  expect_contains(start(), 3, {"made/final"});
  put_file(weights_, good);
  std::filesystem::remove(weights_);
  EXPECT_NE(start().code, 0);
  put_file(weights_, good);
  const std::string config = read_file(model_ / "config.json");
  put_file(model_ / "config.json", "{");
  expect_contains(start(), 3, {"config.json"});
  std::string other = config;
  other.replace(other.find("\"hidden_size\": 32"), 17, "\"hidden_size\": 64");
  put_file(model_ / "config.json", other);
  EXPECT_EQ(start().code, 3);
}

class BadCheckpoint : public testing::Test {
 protected:
  BadCheckpoint() {
    tiny_.train({}, "whole");
    tiny_.train({}, "run", 4);
  }
  Path newest() const { return tiny_.folder() / "checkpoints/step-00000004"; }
  TinyRun tiny_;
};

TEST_F(BadCheckpoint, TheRunResumesFromThePreviousOne) {
  std::filesystem::copy(tiny_.folder(), tiny_.path("kept"), std::filesystem::copy_options::recursive);
  const std::function<void()> damages[] = {[&] { flip_bit(newest() / "model.safetensors", 0.7); },
                                           [&] { flip_bit(newest() / "optimizer.safetensors", 0.4); },
                                           [&] { cut(newest() / "optimizer.safetensors"); },
                                           [&] { flip_bit(newest() / "manifest.json", 0.5); },
                                           [&] { flip_bit(newest() / "state.json", 0.2); },
                                           [&] { std::filesystem::remove(newest() / "config.json"); }};
  for (const auto& damage : damages) {
    std::filesystem::remove_all(tiny_.folder());
    std::filesystem::copy(tiny_.path("kept"), tiny_.folder(), std::filesystem::copy_options::recursive);
    damage();
    set_log_level(LogLevel::kWarning);
    testing::internal::CaptureStderr();
    const TrainResult result = tiny_.train();
    const std::string logged = testing::internal::GetCapturedStderr();
    set_log_level(LogLevel::kError);
    EXPECT_EQ(result.step, 6);
    EXPECT_NE(logged.find("step-00000004"), std::string::npos) << logged;
    EXPECT_NE(logged.find("skipped"), std::string::npos) << logged;
    expect_same_bits(bits_of(tiny_.folder(), 6), bits_of(tiny_.folder("whole"), 6));
    EXPECT_EQ(metrics_of(tiny_.folder()).steps, metrics_of(tiny_.folder("whole")).steps);
  }
}

TEST_F(BadCheckpoint, NoneIsUsable) {
  for (const char* step : {"step-00000002", "step-00000004"})
    flip_bit(tiny_.folder() / "checkpoints" / step / "model.safetensors", 0.7);
  expect_contains(refusal_of(tiny_, {}), 3, {"step-00000002", "step-00000004", "none can be used"});
}

TEST_F(BadCheckpoint, OfAnotherModel) {
  tiny_.train({"model.hidden_size=64"}, "other");
  std::filesystem::remove_all(newest());
  std::filesystem::remove_all(tiny_.folder() / "checkpoints/step-00000002");
  std::filesystem::copy(tiny_.folder("other") / "checkpoints/step-00000006",
                        tiny_.folder() / "checkpoints/step-00000006",
                        std::filesystem::copy_options::recursive);
  expect_contains(refusal_of(tiny_, {}), 3, {"step-00000006", "shape"});
}

TEST_F(BadCheckpoint, AFullDiskKeepsTheLastGoodOne) {
  const auto good = bits_of(tiny_.folder(), 4);
  FaultyFileSystem files({.free_bytes = 20000});
  RunOptions options{.config = tiny_.config()};
  options.files = &files;
  expect_contains(refusal_with(tiny_, options), 4, {"checkpoint", "free"});
  expect_same_bits(bits_of(tiny_.folder(), 4), good);
  EXPECT_EQ(read_file(tiny_.folder() / "checkpoints/latest"), "step-00000004\n");
  EXPECT_EQ(tiny_.train().step, 6);
  expect_same_bits(bits_of(tiny_.folder(), 6), bits_of(tiny_.folder("whole"), 6));
}

TEST(BadInput, ALossThatIsNotFinite) {
  const TinyRun tiny;
  tiny.train({}, "run", 2);
  const auto good = bits_of(tiny.folder(), 2);
  RunOptions wild{
      .config = tiny.config({"optimizer.lr=1e30", "training.clip_grad_norm=0", "training.steps=50"}),
      .accept_changes = true};
  expect_contains(refusal_with(tiny, wild), 5,
                  {"recovery.max_interventions = 10", "nonfinite (NaN)", "optimizer.lr", "data.skip"});
  expect_same_bits(bits_of(tiny.folder(), 2), good);
  const MetricsLog log = metrics_of(tiny.folder());
  EXPECT_NE(find_event(log, "diverged"), nullptr);
  // It resumes with a reasonable rate.
  EXPECT_EQ(tiny.train_with({.config = tiny.config(), .accept_changes = true}).step, 6);
}

}  // namespace
}  // namespace strata::training
