// eval, generate, export and import with a newly trained model.
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "cli/actions.h"
#include "cli/escapes.h"
#include "config/resolve.h"
#include "fixtures/tiny_run.h"
#include "inference/generate.h"
#include "inference/model_runtime.h"

namespace strata::training {
namespace {

using nlohmann::json;

std::string captured(const std::function<int()>& command) {
  testing::internal::CaptureStdout();
  const int code = command();
  std::fflush(stdout);
  std::string out = testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0);
  return out;
}
json evaluated(cli::EvalOptions options) {
  options.json = true;
  options.sets.push_back("device.threads=1");
  return parse_json<json>(captured([&] { return cli::run_evaluation(options); }));
}
std::vector<json> generated(cli::GenerateOptions options) {
  options.json = true;
  options.sets.push_back("device.threads=1");
  const std::string out = captured([&] { return cli::run_generation(options); });
  std::vector<json> lines;
  for (size_t at = 0; at < out.size(); at = out.find('\n', at) + 1)
    lines.push_back(parse_json<json>(out.substr(at, out.find('\n', at) - at)));
  return lines;
}

// A language model, trained once for all tests.
class Trained : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    tiny_ = new TinyRun;
    std::string text;
    for (int i = 0; i < 500; ++i)
      text += "the cat number " + std::to_string(i * 7919 % 100) + " sat on the mat.\n";
    put_file(tiny_->path("corpus.txt"), text);
    tiny_->train({"data.train=[\"" + tiny_->path("corpus.txt").string() + "\"]", "training.steps=40"});
    put_file(tiny_->path("a.txt"), "the cat number 5 sat on the mat.\nthe dog sat\n");
    put_tokens(tiny_->path("held.bin"), tiny_tokens(60, 99));
  }
  static void TearDownTestSuite() {
    delete tiny_;
    tiny_ = nullptr;
  }
  static std::string model() { return tiny_->folder().string(); }
  static std::string held() { return tiny_->path("held.bin").string(); }

  // -ln p of the last token given the others, by the programs for generation, which eval does not use.
  static double surprise(program::Executor& executor, std::span<const int32_t> ids) {
    const size_t context = ids.size() - 1;
    std::vector<int32_t> tokens, positions;
    for (size_t i = 0; i < static_cast<size_t>(inference::kPrefillChunk); ++i) {
      tokens.push_back(i < context ? ids[i] : 0);
      positions.push_back(static_cast<int32_t>(std::min<size_t>(i, 63)));
    }
    executor.upload_column(0, Column::kTokens, 0, tokens);
    executor.upload_column(0, Column::kPositions, 0, positions);
    executor.write("cache_position", int32_t{0});
    executor.write("last_row", static_cast<int32_t>(context) - 1);
    executor.run_script(0);
    const auto logits = executor.read_all<float>("logits");
    double sum = 0;
    for (size_t v = 0; v < kTinyVocab; ++v) sum += std::exp(static_cast<double>(logits[v]));
    return std::log(sum) - static_cast<double>(logits[static_cast<size_t>(ids.back())]);
  }
  struct Expected {
    double sum = 0;
    int64_t tokens = 0;
    double loss() const { return sum / static_cast<double>(tokens); }
  };
  // The rules of interface.md, literally.
  static Expected expected_loss(const std::vector<uint16_t>& ids, int64_t length, int64_t stride,
                                bool documents) {
    inference::ModelRuntime runtime = inference::open_model(model());
    inference::load_runtime(runtime, {.compute = config::compute_options(config::config_of_sets({})),
                                      .requests = inference::generation_requests(inference::kPrefillChunk)});
    Expected expected;
    std::vector<bool> counted(ids.size());
    for (size_t begin = 0; begin + 1 < ids.size(); begin += static_cast<size_t>(stride)) {
      const size_t end = std::min(ids.size(), begin + static_cast<size_t>(length) + 1);
      size_t document = begin;
      for (size_t target = begin + 1; target < end; ++target) {
        if (documents && ids[target - 1] == 0) {
          document = target;
          continue;
        }
        if (counted[target]) continue;
        counted[target] = true;
        const std::vector<int32_t> context(ids.begin() + static_cast<std::ptrdiff_t>(document),
                                           ids.begin() + static_cast<std::ptrdiff_t>(target) + 1);
        expected.sum += surprise(*runtime.executor, context);
        ++expected.tokens;
      }
    }
    return expected;
  }

  static TinyRun* tiny_;
};
TinyRun* Trained::tiny_ = nullptr;

// Chunks of a text are counted from its beginning, and the padding of the last window is in none of them.
TEST(Eval, LastWindowOfAModelWithChunksEqualsItsTextAlone) {
  ScratchFolder scratch;
  std::vector<uint16_t> ids;
  for (int i = 0; i < 45; ++i) ids.push_back(static_cast<uint16_t>(1 + i * 7919 % 60));
  const auto sum = [&](size_t begin, size_t end, int64_t length) {
    put_tokens(
        scratch / "ids.bin",
        {ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.begin() + static_cast<std::ptrdiff_t>(end)},
        61);
    const json found = evaluated({.model = (Path(STRATA_GOLDEN_MODELS) / "llama4").string(),
                                  .tokens = {(scratch / "ids.bin").string()},
                                  .sequence_length = length,
                                  .sets = {"precision.compute=\"fp32\""}});
    EXPECT_EQ(found["tokens"], end - begin - 1);
    return found["loss"].get<double>() * static_cast<double>(end - begin - 1);
  };
  EXPECT_NEAR(sum(0, 45, 32), sum(0, 33, 32) + sum(32, 45, 12), 1e-3);
}

TEST_F(Trained, EvalEqualsAnIndependentComputation) {
  const auto ids = tiny_tokens(60, 99);
  for (const auto& [length, stride] :
       std::vector<std::pair<int64_t, int64_t>>{{7, 7}, {7, 3}, {59, 59}, {16, 1}, {64, 64}}) {
    for (const bool documents : {false, true}) {
      const Expected expected = expected_loss(ids, length, stride, documents);
      cli::EvalOptions options{
          .model = model(), .tokens = {held()}, .sequence_length = length, .stride = stride};
      if (documents) options.sets.push_back("data.pack=\"documents\"");
      const json found = evaluated(options);
      const std::string what = fmt::format("length {} stride {} documents {}", length, stride, documents);
      EXPECT_EQ(found["tokens"], expected.tokens) << what;
      EXPECT_NEAR(found["loss"].get<double>(), expected.loss(), 1e-4) << what;
      EXPECT_NEAR(found["perplexity"].get<double>(), std::exp(found["loss"].get<double>()), 1e-9) << what;
    }
  }
}

TEST_F(Trained, EvalOfText) {
  const json found =
      evaluated({.model = model(), .text = {tiny_->path("a.txt").string()}, .sequence_length = 32});
  const auto tokenizer = inference::open_model(model()).tokenizer;
  const std::string text = read_file(tiny_->path("a.txt"));
  auto ids = tokenizer->encode(text);
  ids.push_back(*tokenizer->end_of_text_id());  // after every text, as in a run
  const Expected expected = expected_loss({ids.begin(), ids.end()}, 32, 32, false);
  EXPECT_EQ(found["tokens"], expected.tokens);
  EXPECT_NEAR(found["loss"].get<double>(), expected.loss(), 1e-4);
  EXPECT_NEAR(found["bits_per_byte"].get<double>(),
              expected.sum / std::log(2.0) / static_cast<double>(text.size()), 1e-4);
  EXPECT_LT(found["loss"].get<double>(), std::log(300.0));
}

// The same text as a run's valid set and from the command line, on the same weights.
TEST_F(Trained, EvalOfTextEqualsTheRuns) {
  for (const std::string& ends : std::vector<std::string>{"true", "false"}) {
    const std::string run = "ends_" + ends;
    tiny_->train({"data.train=[\"" + tiny_->path("corpus.txt").string() + "\"]",
                  "data.valid=[\"" + tiny_->path("a.txt").string() + "\"]", "data.pack=\"stream\"",
                  "training.steps=2", "eval.interval=\"2 steps\"", "tokenizer.add_eos=" + ends},
                 run);
    const std::string metrics = read_file(tiny_->folder(run) / "metrics.jsonl");
    double wanted = 0;
    for (size_t at = 0; at < metrics.size(); at = metrics.find('\n', at) + 1) {
      const json line = parse_json<json>(metrics.substr(at, metrics.find('\n', at) - at));
      wanted = line.value("eval/valid/loss", wanted);
    }
    const json found = evaluated({.model = (tiny_->folder(run) / "checkpoints/step-00000002").string(),
                                  .text = {tiny_->path("a.txt").string()},
                                  .sequence_length = 16,
                                  .sets = {"tokenizer.add_eos=" + ends}});
    EXPECT_NEAR(found["loss"].get<double>(), wanted, 1e-5) << run;
  }
}

TEST_F(Trained, EvalRejectsInvalidInputs) {
  EXPECT_THROW(cli::run_evaluation({.model = model(), .tokens = {held()}, .sequence_length = 65}),
               ConfigError);
  EXPECT_THROW(cli::run_evaluation({.model = model(), .tokens = {held()}, .sequence_length = 8, .stride = 9}),
               ConfigError);
  EXPECT_THROW(cli::run_evaluation({.model = model(),
                                    .tokens = {held()},
                                    .sequence_length = 8,
                                    .sets = {"precision.compute=\"fp8\""}}),
               ConfigError);
  EXPECT_THROW(cli::run_evaluation({.model = model(), .task = "hellaswag", .jsonl = "nowhere"}), ConfigError);
  EXPECT_THROW(cli::run_evaluation({.model = tiny_->path("nowhere").string(), .tokens = {held()}}),
               ConfigError);
  // Tokens of another tokenizer than the model's, and documents without boundaries.
  put_tokens(tiny_->path("other.bin"), tiny_tokens(60, 99));
  put_file(tiny_->path("other.json"),
           dump_json(json{{"dtype", "u16"}, {"tokenizer_hash", std::string(16, 'a')}}));
  EXPECT_THROW(cli::run_evaluation(
                   {.model = model(), .tokens = {tiny_->path("other.bin").string()}, .sequence_length = 8}),
               DataError);
  put_tokens(tiny_->path("wide.bin"), {1, 2, 3, 300, 5});
  EXPECT_THROW(cli::run_evaluation(
                   {.model = model(), .tokens = {tiny_->path("wide.bin").string()}, .sequence_length = 8}),
               DataError);
}

// Without predicted tokens there is no loss.
TEST_F(Trained, EvalRejectsTextWithoutTargets) {
  const std::string ends = tiny_->path("ends.bin").string();
  put_tokens(ends, std::vector<uint16_t>(60, 0));
  try {
    cli::run_evaluation(
        {.model = model(), .tokens = {ends}, .sets = {"data.pack=\"documents\"", "device.threads=1"}});
    ADD_FAILURE() << "not refused";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("ends.bin"), std::string::npos) << error.what();
  }
}

// Tasks in the loop have the same results as on the command line with the same weights, also after a resume.
TEST_F(Trained, TasksInTheLoop) {
  const std::string lambada = tiny_->path("lambada.jsonl").string(),
                    piqa = tiny_->path("piqa.jsonl").string();
  put_file(lambada,
           "{\"text\":\"the cat number 5 sat on the mat.\"}\n{\"text\":\"the cat number 7 sat on the\"}\n"
           "{\"text\":\"the cat\"}\n");
  put_file(piqa,
           "{\"goal\":\"the cat\",\"sol1\":\"number 5 sat\",\"sol2\":\"sat sat sat\",\"label\":0}\n"
           "{\"goal\":\"the\",\"sol1\":\"cat\",\"sol2\":\"mat mat\",\"label\":1}\n");
  const std::vector<std::string> sets{"data.train=[\"" + tiny_->path("corpus.txt").string() + "\"]",
                                      "data.pack=\"stream\"", "eval.interval=\"2 steps\"",
                                      "eval.set=[{name=\"words\", path=[\"" + lambada +
                                          "\"], task=\"lambada_openai\"}, {name=\"physics\", path=[\"" +
                                          piqa + "\"], task=\"piqa\", limit=1}]"};
  tiny_->train(sets, "tasks");
  const auto evaluations = [&](const std::string& run) {
    std::vector<json> found;
    const std::string text = read_file(tiny_->folder(run) / "metrics.jsonl");
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
      const json line = parse_json<json>(text.substr(at, text.find('\n', at) - at));
      if (!line.contains("eval/words/acc")) continue;
      json kept{{"step", line["step"]}};
      for (const auto& [key, value] : line.items()) {
        if (key.starts_with("eval/")) kept[key] = value;
      }
      found.push_back(kept);
    }
    return found;
  };
  const auto whole = evaluations("tasks");
  ASSERT_EQ(whole.size(), 3u);
  for (const char* name :
       {"eval/words/acc", "eval/words/perplexity", "eval/physics/acc", "eval/physics/acc_norm"})
    EXPECT_TRUE(whole.back().contains(name)) << name;
  const json words = evaluated({.model = (tiny_->folder("tasks") / "checkpoints/step-00000006").string(),
                                .task = "lambada_openai",
                                .jsonl = lambada});
  EXPECT_NEAR(words["perplexity"].get<double>() / whole.back()["eval/words/perplexity"].get<double>(), 1,
              1e-4);
  EXPECT_EQ(words["acc"], whole.back()["eval/words/acc"]);
  const std::string page = read_file(tiny_->folder("tasks") / "index.html");
  EXPECT_NE(page.find("words/acc"), std::string::npos);
  EXPECT_NE(page.find("Tasks, %"), std::string::npos);
  // In two parts: the fifth call of `stop`, after steps 1 and 2 and two tasks, ends the evaluation.
  EXPECT_EQ(tiny_->train(sets, "parts", 5).end, RunEnd::kInterrupted);
  tiny_->train(sets, "parts");
  EXPECT_EQ(evaluations("parts"), whole);
  // Rejected before training starts.
  const auto with = [&](const std::string& set) {
    auto changed = sets;
    changed.back() = "eval.set=[" + set + "]";
    return changed;
  };
  EXPECT_THROW(tiny_->train(with("{name=\"a\", path=[\"x\"], task=\"helaswag\"}"), "bad"), ConfigError);
  EXPECT_THROW(tiny_->train(with("{name=\"a\", path=[\"x\"], task=\"piqa\", max_tokens=5}"), "bad"),
               ConfigError);
  EXPECT_THROW(tiny_->train(with("{name=\"a\", path=[\"x\"], limit=5}"), "bad"), ConfigError);
  EXPECT_THROW(tiny_->train(with("{name=\"a\", path=[\"" + lambada + "\"], task=\"piqa\"}"), "bad"),
               DataError);
  EXPECT_THROW(tiny_->train(with("{name=\"a\", path=[\"nowhere\"], task=\"piqa\"}"), "bad"), ConfigError);
  EXPECT_FALSE(std::filesystem::exists(tiny_->folder("bad") / "checkpoints"));
}

TEST_F(Trained, ExportImportEval) {
  const json whole = evaluated({.model = model(), .tokens = {held()}, .sequence_length = 16});
  const Path exported = tiny_->path("exported");
  captured([&] { return cli::run_export({.source = model(), .target = exported, .dtype = "fp32"}); });
  EXPECT_EQ(evaluated({.model = exported.string(), .tokens = {held()}, .sequence_length = 16}), whole);
  const Path imported = tiny_->path("imported");
  captured([&] { return cli::run_import({.source = exported.string(), .target = imported}); });
  EXPECT_EQ(evaluated({.model = imported.string(), .tokens = {held()}, .sequence_length = 16}), whole);
  // The import is step 0 of a run, with its own tokenizer.
  const config::RunConfig config =
      tiny_->config({"data.train=[\"" + tiny_->path("corpus.txt").string() + "\"]"}, "imported");
  EXPECT_EQ(tiny_->train_with({.config = config}).end, RunEnd::kFinished);
  const MetricsLog log = metrics_of(imported);
  EXPECT_EQ(log.steps.size(), 6u);
  EXPECT_LT(log.loss[0], 4.0) << "the weights were imported";
  EXPECT_EQ(read_file(imported / "checkpoints/step-00000006/tokenizer.json"),
            read_file(exported / "tokenizer.json"));
  // Half the bits change the loss slightly; computations use the exported dtype.
  const Path half = tiny_->path("half");
  captured([&] { return cli::run_export({.source = model(), .target = half, .dtype = "bf16"}); });
  const double loss = evaluated({.model = half.string(), .tokens = {held()}, .sequence_length = 16})["loss"];
  EXPECT_NEAR(loss, whole["loss"].get<double>(), 0.05);
  EXPECT_THROW(cli::run_import({.source = exported.string(), .target = imported}), ConfigError)
      << "the folder contains a run";
}

TEST_F(Trained, GenerateRepeatsBySeed) {
  cli::GenerateOptions options{.model = model(), .prompt = "the cat", .max_tokens = 20};
  const auto one = generated(options);
  EXPECT_EQ(generated(options), one);
  EXPECT_LE(one[0]["ids"].size(), 20u);
  options.seed = 5;
  EXPECT_NE(generated(options), one);
  options.temperature = 0;
  const auto greedy = generated(options);
  options.seed = 6;
  EXPECT_EQ(generated(options), greedy) << "greedy text does not depend on the seed";
  options.temperature = 1;
  options.top_k = 1;
  EXPECT_EQ(generated(options)[0]["ids"], greedy[0]["ids"]);
}

// A prompt yields the same text on every line and by itself; equal prompts yield different texts, in their
// order.
TEST_F(Trained, TextsDoNotDependOnTheirLine) {
  const auto texts = [&](const std::vector<std::string>& prompts, int64_t batch = 8) {
    std::string lines;
    for (const std::string& prompt : prompts) lines += dump_json(json{{"prompt", prompt}}) + "\n";
    put_file(tiny_->path("lines.jsonl"), lines);
    std::vector<json> ids;
    for (const json& one : generated({.model = model(),
                           .prompts = tiny_->path("lines.jsonl").string(),
                           .max_tokens = 24,
                           .temperature = 2,
                           .batch = batch}))
      ids.push_back(one["ids"]);
    return ids;
  };
  const auto one = texts({"the cat", "the mat", "the cat", "the cat"});
  const auto other = texts({"sat", "the cat", "the cat", "number 7", "the mat"}, 2);
  EXPECT_EQ(other[1], one[0]);
  EXPECT_EQ(other[2], one[2]);
  EXPECT_EQ(other[4], one[1]);
  EXPECT_NE(one[0], one[2]);
  EXPECT_NE(one[2], one[3]);
  EXPECT_EQ(generated({.model = model(), .prompt = "the cat", .max_tokens = 24, .temperature = 2})[0]["ids"],
            one[0]);
}

TEST_F(Trained, SeparatesTheTextsOfAFile) {
  put_file(tiny_->path("two.jsonl"), "{\"prompt\": \"the cat\"}\n\n{\"prompt\": \"the\"}\n");
  const std::string file = tiny_->path("two.jsonl").string();
  for (const int64_t batch : {1, 8}) {
    cli::GenerateOptions options{
        .model = model(), .prompts = file, .max_tokens = 8, .temperature = 0, .batch = batch};
    const auto texts = generated(options);
    options.sets.push_back("device.threads=1");
    EXPECT_EQ(captured([&] { return cli::run_generation(options); }),
              "=== " + file + ":1\nthe cat" + texts[0]["text"].get<std::string>() + "\n=== " + file +
                  ":3\nthe" + texts[1]["text"].get<std::string>() + "\n");
  }
}

TEST_F(Trained, StopTextsHaveEscapes) {
  const cli::GenerateOptions options{
      .model = model(), .prompt = "the cat number 5 sat on the", .max_tokens = 20, .temperature = 0};
  const std::string text = generated(options)[0]["text"];
  const std::string stop = text.substr(3, 2);
  cli::GenerateOptions escaped = options;
  escaped.stop = {fmt::format("\\u{:04x}\\x{:02X}", static_cast<int>(stop[0]), static_cast<int>(stop[1]))};
  EXPECT_EQ(generated(escaped)[0]["text"], text.substr(0, text.find(stop)));
  escaped.stop = {"\\begin"};
  EXPECT_THROW(cli::run_generation(escaped), ConfigError);
}

TEST(Escapes, AreThoseOfJsonAndC) {
  EXPECT_EQ(cli::unescaped("plain", "--stop"), "plain");
  EXPECT_EQ(cli::unescaped("\\n\\n", "--stop"), "\n\n");
  EXPECT_EQ(cli::unescaped("a\\tb\\r\\\\n\\\"", "--stop"), "a\tb\r\\n\"");
  EXPECT_EQ(cli::unescaped("\\u00e9\\x41\\uD83D\\uDE00", "--stop"), "\u00e9A\U0001F600");
  EXPECT_EQ(cli::unescaped("\n", "--stop"), "\n") << "expanded by the shell";
  for (const char* bad : {"\\", "a\\", "\\q", "\\x4", "\\u12", "\\uZZZZ", "\\uD83D", "\\uDE00", "\\uD83Dx"}) {
    try {
      cli::unescaped(bad, "--stop");
      ADD_FAILURE() << bad;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("[--stop]"), std::string::npos) << error.what();
    }
  }
}

// A changed vocabulary entry would change the texts; a resume uses the previous checkpoint, whose tokenizer
// is intact.
TEST_F(Trained, DoesNotUseADamagedTokenizer) {
  const Path copy = tiny_->path("copy");
  std::filesystem::copy(tiny_->folder(), copy, std::filesystem::copy_options::recursive);
  const Path tokenizer = copy / "checkpoints/step-00000040/tokenizer.json";
  std::string text = read_file(tokenizer);
  text.replace(text.find("\"the\""), 5, "\"teh\"");
  put_file(tokenizer, text);
  try {
    cli::run_generation({.model = copy.string(), .prompt = "the cat", .max_tokens = 2});
    FAIL() << "not refused";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("tokenizer.json"), std::string::npos) << error.what();
  }
  set_log_level(LogLevel::kWarning);
  testing::internal::CaptureStderr();
  const auto end = tiny_->train(
      {"data.train=[\"" + tiny_->path("corpus.txt").string() + "\"]", "training.steps=40"}, "copy");
  const std::string message = testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::kError);
  EXPECT_EQ(end.step, 40);
  EXPECT_NE(message.find("step-00000040"), std::string::npos) << message;
  EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
}

TEST_F(Trained, GreedyTextIsTheMostProbable) {
  inference::ModelRuntime runtime = inference::open_model(model());
  inference::load_runtime(runtime, {.compute = config::compute_options(config::config_of_sets({})),
                                    .requests = inference::generation_requests(inference::kPrefillChunk)});
  auto ids = runtime.tokenizer->encode("the cat");
  const auto made =
      generated({.model = model(), .prompt = "the cat", .max_tokens = 12, .temperature = 0})[0]["ids"];
  ASSERT_FALSE(made.empty());
  for (const auto& id : made) {
    ids.push_back(0);
    surprise(*runtime.executor, ids);
    const auto logits = runtime.executor->read_all<float>("logits");
    EXPECT_EQ(id.get<int64_t>(),
              std::max_element(logits.begin(), logits.begin() + kTinyVocab) - logits.begin());
    ids.back() = id.get<int32_t>();
  }
}

TEST_F(Trained, StopTextsAndPrompts) {
  cli::GenerateOptions options{.model = model(), .prompt = "the cat", .max_tokens = 40, .temperature = 0};
  const std::string text = generated(options)[0]["text"];
  ASSERT_GT(text.size(), 8u);
  options.stop = {"never there", text.substr(4, 3)};
  EXPECT_EQ(generated(options)[0]["text"], text.substr(0, text.find(text.substr(4, 3))));
  put_file(tiny_->path("prompts.jsonl"), "{\"prompt\": \"the cat\"}\n\n{\"prompt\": \"\"}\n");
  options = {
      .model = model(), .prompts = tiny_->path("prompts.jsonl").string(), .max_tokens = 40, .temperature = 0};
  const auto lines = generated(options);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["text"], text);
  EXPECT_EQ(lines[0]["prompt"], "the cat");
  put_file(tiny_->path("bad.jsonl"), "{\"prompt\": \"a\"}\n{\"promt\": \"b\"}\n");
  options.prompts = tiny_->path("bad.jsonl").string();
  EXPECT_THROW(cli::run_generation(options), DataError);
  // A prompt and its text end at the model's last position.
  options.prompts = "";
  options.prompt = "the cat number 5 sat on the mat.";
  options.max_tokens = 1000;
  options.temperature = 1;
  EXPECT_LE(generated(options)[0]["ids"].size(), 64u);
}

}  // namespace
}  // namespace strata::training
