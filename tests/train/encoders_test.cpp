// Encoders and encoder-decoders, from text to an exported folder: training, evaluation, resuming, generation.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/huggingface.h"
#include "cli/actions.h"
#include "config/resolve.h"
#include "fixtures/golden_model.h"
#include "fixtures/tiny_run.h"
#include "inference/generate.h"
#include "inference/model_runtime.h"

namespace strata::train {
namespace {

using nlohmann::json;

std::string captured(const std::function<int()>& command) {
  testing::internal::CaptureStdout();
  const int code = command();
  std::fflush(stdout);
  EXPECT_EQ(code, 0);
  return testing::internal::GetCapturedStdout();
}
json evaluated(cli::EvalOptions options) {
  options.json = true;
  options.sets.insert(options.sets.end(), {"device.threads=1", "precision.compute=fp32"});
  return parse_json<json>(captured([&] { return cli::run_evaluation(options); }));
}

template <typename Run>
std::string refusal(const Run& run) {
  set_log_level(LogLevel::kError);
  try {
    run();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}
void expect_contains(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
}

// Runs of six steps on a text, with a tokenizer trained on it.
class Encoders : public testing::TestWithParam<const char*> {
 protected:
  Encoders() {
    for (const char* name : {"corpus.txt", "held.txt"}) {
      std::string text;
      for (int i = 0; i < (name[0] == 'c' ? 600 : 40); ++i)
        text += "the cat number " + std::to_string(i * 7919 % 100) + " sat on the mat.\n";
      put_file(tiny_.path(name), text);
    }
  }
  bool is_t5() const { return GetParam() == std::string("t5"); }
  config::RunConfig config(const std::string& name, std::vector<std::string> sets = {}) const {
    std::string toml = tiny_.toml(name);
    toml.replace(toml.find("llama3"), 6, GetParam());
    toml.replace(toml.find("vocab_size = 300"), 16, "vocab_size = 420");
    toml.replace(toml.find("num_key_value_heads = 2"), 23, "");
    sets.push_back("data.train=[\"" + tiny_.path("corpus.txt").string() + "\"]");
    sets.push_back("data.valid=[\"" + tiny_.path("held.txt").string() + "\"]");
    return config::parse_run_config(toml, "RUN.toml", sets);
  }
  TrainResult train(const std::string& name, const std::vector<std::string>& sets = {}, int64_t steps = -1) {
    return tiny_.train_with(RunOptions{.config = config(name, sets)}, steps);
  }
  // The run's tokens of held.txt.
  std::string held_tokens(const std::string& name) const {
    std::string smallest;
    for (const auto& entry : std::filesystem::directory_iterator(tiny_.folder(name) / "data")) {
      if (entry.path().extension() != ".bin") continue;
      if (smallest.empty() || entry.file_size() < std::filesystem::file_size(smallest))
        smallest = entry.path().string();
    }
    return smallest;
  }
  std::string model(const std::string& name = "run") const { return tiny_.folder(name).string(); }

  TinyRun tiny_;
};

TEST_P(Encoders, ResumeBitForBit) {
  for (const char* name : {"whole", "cut"}) {
    if (std::string(name) == "cut") train(name, {"training.micro_batch_size=2"}, 3);
    EXPECT_EQ(train(name, {"training.micro_batch_size=2"}).end, RunEnd::kFinished);
  }
  expect_same_bits(bits_of(tiny_.folder("whole"), 6), bits_of(tiny_.folder("cut"), 6));
  const MetricsLog whole = metrics_of(tiny_.folder("whole"));
  EXPECT_EQ(whole.steps, metrics_of(tiny_.folder("cut")).steps);
  EXPECT_LT(whole.loss.back(), whole.loss.front());
}

TEST_P(Encoders, EvalMatchesTheLossOfTheRun) {
  // The last window is incomplete, and its padding must not count.
  const std::vector<std::string> sets{"eval.interval=\"6 steps\"", "eval.max_tokens=100000",
                                      "data.pack=stream"};
  EXPECT_EQ(train("run", sets).end, RunEnd::kFinished);
  const std::string metrics = read_file(tiny_.folder() / "metrics.jsonl");
  const size_t at = metrics.find("\"eval/valid/loss\":");
  ASSERT_NE(at, metrics.npos);
  const double seen = std::stod(metrics.substr(at + 18));
  EXPECT_EQ(metrics.find("bits_per_byte"), metrics.npos) << "the loss does not cover all tokens";
  const json once = evaluated(
      {.model = model(), .tokens = {held_tokens("run")}, .sequence_length = 16, .stride = std::nullopt});
  EXPECT_NEAR(once["loss"].get<double>(), seen, 1e-5);
  const json text =
      evaluated({.model = model(), .text = {tiny_.path("held.txt").string()}, .sequence_length = 16});
  EXPECT_NEAR(text["loss"].get<double>(), seen, 0.1);
  EXPECT_FALSE(text.contains("bits_per_byte"));
  // A higher rate masks more tokens.
  const json more = evaluated({.model = model(),
                               .tokens = {held_tokens("run")},
                               .sequence_length = 16,
                               .sets = {"data.mask_rate=0.4"}});
  EXPECT_GT(more["tokens"].get<int64_t>(), once["tokens"].get<int64_t>());
  const auto eval = [&](cli::EvalOptions options) {
    options.model = model();
    return refusal([&] { cli::run_evaluation(options); });
  };
  const std::string tokens = held_tokens("run"), kind = is_t5() ? "an encoder-decoder" : "an encoder";
  expect_contains(eval({.tokens = {tokens}, .sequence_length = 16, .stride = 8}), {"--stride", "8"});
  expect_contains(eval({.tokens = {tokens}, .sequence_length = 16, .sets = {"data.objective=causal"}}),
                  {"data.objective", "causal", kind});
  put_file(tiny_.path("q.jsonl"), R"({"goal":"a","sol1":"b","sol2":"c","label":0})"
                                  "\n");
  expect_contains(eval({.task = "piqa", .jsonl = tiny_.path("q.jsonl").string()}),
                  {"--task piqa", kind, GetParam()});
}

TEST_P(Encoders, TheFinalModelSurvivesImportAndExport) {
  EXPECT_EQ(train("run").end, RunEnd::kFinished);
  const Path final_model = tiny_.folder() / "final";
  ASSERT_EQ(refusal([&] {
              captured([&] {
                return cli::run_import({.source = final_model.string(), .target = tiny_.folder("imported")});
              });
              captured([&] {
                return cli::run_export(
                    {.source = model("imported"), .target = tiny_.path("exported"), .dtype = "bf16"});
              });
            }),
            "");
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"})
    EXPECT_TRUE(read_file(final_model / file) == read_file(tiny_.path("exported") / file)) << file;
  EXPECT_EQ(std::filesystem::exists(final_model / "generation_config.json"), is_t5());
  const json names = parse_json<json>(read_file(final_model / "tokenizer_config.json"));
  const json ids = parse_json<json>(read_file(final_model / "config.json"));
  if (is_t5()) {
    EXPECT_EQ(names["eos_token"], "</s>");
    EXPECT_EQ(names["pad_token"], "<pad>");
    EXPECT_EQ(ids["decoder_start_token_id"], 0);
    EXPECT_EQ(ids["eos_token_id"], 1);
  } else {
    EXPECT_EQ(names["mask_token"], "[MASK]");
    EXPECT_EQ(names["cls_token"], "[CLS]");
    EXPECT_EQ(ids["pad_token_id"], 0);
  }
  // A run that starts from it keeps its ids and starts with a lower loss.
  std::string toml = tiny_.toml("next");
  toml.replace(toml.find("family"), toml.find("[data]") - toml.find("family"),
               "from = \"" + final_model.string() + "\"\n");
  const std::vector<std::string> sets{"data.train=[\"" + tiny_.path("corpus.txt").string() + "\"]",
                                      "training.steps=1"};
  const config::RunConfig next = config::parse_run_config(toml, "RUN.toml", sets);
  tiny_.train_with(RunOptions{.config = next});
  EXPECT_LT(metrics_of(tiny_.folder("next")).loss.front(), metrics_of(tiny_.folder()).loss.front());
  EXPECT_EQ(parse_json<json>(read_file(tiny_.folder("next") / "final/config.json")), ids);
  const std::string gguf = refusal([&] {
    try {
      cli::run_export({.source = model(), .target = tiny_.path("m.gguf"), .format = "gguf"});
    } catch (const DataError& error) {
      throw ConfigError("{}", error.what());
    }
  });
  expect_contains(gguf, {"gguf", GetParam()});
}

TEST_P(Encoders, GenerateTextOrRefuse) {
  if (is_t5()) {
    EXPECT_EQ(train("run", {"eval.interval=\"6 steps\"", "eval.sample_prompts=[\"the cat <extra_id_0> on\"]",
                            "eval.sample_tokens=5"})
                  .end,
              RunEnd::kFinished);
    expect_contains(refusal([&] {
                      train("other",
                            {"eval.sample_prompts=[\"the cat sat on the mat and on all other mats\"]"});
                    }),
                    {"eval.sample_prompts", "at most 16"});
    put_file(tiny_.path("p.jsonl"), "{\"prompt\": \"the cat <extra_id_0> on\"}\n{\"prompt\": \"mat\"}\n");
    cli::GenerateOptions options{.model = model(),
                                 .prompts = tiny_.path("p.jsonl").string(),
                                 .max_tokens = 5,
                                 .sets = {"device.threads=1", "precision.compute=fp32"},
                                 .json = true};
    const std::string together = captured([&] { return cli::run_generation(options); });
    options.batch = 1;
    EXPECT_EQ(together, captured([&] { return cli::run_generation(options); }));
    EXPECT_EQ(std::count(together.begin(), together.end(), '\n'), 2);
    options = {.model = model(), .prompt = "the cat", .max_tokens = 3, .sets = {"device.threads=1"}};
    EXPECT_EQ(captured([&] { return cli::run_generation(options); }).find("the cat"), std::string::npos)
        << "the prompt is not repeated";
    return;
  }
  EXPECT_EQ(train("run").end, RunEnd::kFinished);
  expect_contains(refusal([&] { cli::run_generation({.model = model(), .prompt = "the"}); }),
                  {"generate", "encoder", "bert"});
  expect_contains(refusal([&] { train("other", {"eval.sample_prompts=[\"a\"]"}); }), {"eval.sample_prompts"});
}

// Two more stages than layers: the first has only the embedding and no position biases.
TEST_P(Encoders, TrainOnAPipelineWhoseFirstStageHasNoLayers) {
  const int ranks = is_t5() ? 3 : 2;
  const std::vector<std::string> sets{"training.micro_batch_size=1", "precision.compute=fp32"};
  train("one", sets);
  std::vector<std::string> piped = sets;
  piped.push_back("parallel.pipeline=" + std::to_string(ranks));
  piped.push_back("parallel.schedule=zbv");
  tiny_.train_ranks(config("many", piped), ranks);
  const MetricsLog one = metrics_of(tiny_.folder("one")), many = metrics_of(tiny_.folder("many"));
  ASSERT_EQ(one.loss.size(), many.loss.size());
  for (size_t i = 0; i < one.loss.size(); ++i) EXPECT_NEAR(many.loss[i], one.loss[i], 1e-4) << i;
  EXPECT_TRUE(std::filesystem::exists(tiny_.folder("many") / "final/model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Families, Encoders, testing::Values("bert", "t5"));

class SourceTexts : public testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return (Path(STRATA_GOLDEN_MODELS) / GetParam()).string(); }
  inference::ModelRuntime runtime(int64_t texts, int64_t source, int64_t cache_tokens) const {
    inference::ModelRuntime runtime = inference::open_model(folder());
    inference::load_runtime(
        runtime, {.compute = config::compute_options(config::config_of_sets({"device.threads=2"})),
                  .requests = inference::generation_requests(inference::kPrefillChunk, texts, source),
                  .cache_tokens = cache_tokens,
                  .cache_sequences = texts});
    return runtime;
  }
};

TEST_P(SourceTexts, GreedyTextEqualsTransformers) {
  const golden::Golden golden(GetParam());
  const auto prompt = golden.integers("greedy/prompt"), wanted = golden.integers("greedy/tokens");
  // With the exact source length, and with a longer one.
  for (const int64_t more : {0, 23}) {
    const inference::ModelRuntime runtime = this->runtime(1, std::ssize(prompt) + more, std::ssize(wanted));
    inference::Generator generator(*runtime.executor, 0, 1);
    EXPECT_EQ(generator.generate(prompt, {.max_tokens = std::ssize(wanted), .temperature = 0}), wanted);
  }
}

TEST_P(SourceTexts, ABatchEqualsSingleTexts) {
  std::vector<inference::SequenceRequest> texts;
  for (int32_t i = 0; i < 20; ++i) {
    inference::SequenceRequest text;
    for (int32_t j = 0; j <= i * 2; ++j) text.prompt.push_back(3 + (i * 31 + j * 17) % 50);
    text.options = {.max_tokens = 3 + i % 11, .temperature = 3, .seed = static_cast<uint64_t>(i)};
    texts.push_back(text);
  }
  const inference::ModelRuntime many = runtime(7, 40, 20), one = runtime(1, 40, 20);
  inference::Generator together(*many.executor, 0, 1), alone(*one.executor, 0, 1);
  EXPECT_EQ(together.sequences(), 7);
  together.generate(texts, {}, [&](size_t i, const std::vector<int32_t>& made) {
    EXPECT_EQ(made, alone.generate(texts[i].prompt, texts[i].options)) << i;
    EXPECT_FALSE(made.empty());
  });
  texts = {{std::vector<int32_t>(41, 3), {.max_tokens = 1}}};
  expect_contains(refusal([&] { alone.generate(texts, {}, {}); }), {"41 tokens", "at most 40"});
}

INSTANTIATE_TEST_SUITE_P(Models, SourceTexts, testing::Values("t5", "t5-gated"), [](const auto& model) {
  return std::string(model.param) == "t5" ? "t5" : "t5_gated";
});

}  // namespace
}  // namespace strata::train
