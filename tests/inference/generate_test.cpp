// Generation: options and greedy texts compared with transformers (tools/golden/make_generation_golden.py),
// several concurrent texts, stop texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/actions.h"
#include "config/resolve.h"
#include "fixtures/scratch_folder.h"
#include "inference/generate.h"
#include "inference/model_runtime.h"
#include "inference/text_stream.h"

namespace strata::training {
namespace {

using nlohmann::json;

const json& golden() {
  static const json file = parse_json<json>(read_file(STRATA_GENERATION));
  return file;
}
std::string model_path(const std::string& name) {
  return (Path(STRATA_TASKS) / name).string();
}

std::string captured(const cli::GenerateOptions& options) {
  testing::internal::CaptureStdout();
  const int code = cli::run_generation(options);
  std::fflush(stdout);
  EXPECT_EQ(code, 0);
  return testing::internal::GetCapturedStdout();
}
std::vector<json> generated(cli::GenerateOptions options) {
  options.json = true;
  options.sets.push_back("device.threads=1");
  const std::string out = captured(options);
  std::vector<json> lines;
  for (size_t at = 0; at < out.size(); at = out.find('\n', at) + 1)
    lines.push_back(parse_json<json>(out.substr(at, out.find('\n', at) - at)));
  return lines;
}

TEST(Sampling, DrawsFromWhatTransformersWould) {
  for (const json& one : golden()["sampling"]) {
    auto logits = one["logits"].get<std::vector<float>>();
    const auto history = one["history"].get<std::vector<int32_t>>();
    const json& switches = one["switches"];
    const inference::SamplingOptions options{.temperature = switches.value("temperature", 1.0),
                                             .top_k = switches.value("top_k", int64_t{0}),
                                             .top_p = switches.value("top_p", 1.0),
                                             .min_p = switches.value("min_p", 0.0),
                                             .repetition_penalty = switches.value("repetition_penalty", 1.0)};
    auto weights = inference::token_weights(logits, history, options);
    double total = 0;
    for (const inference::TokenWeight& weight : weights) total += weight.weight;
    std::sort(weights.begin(), weights.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    ASSERT_EQ(weights.size(), one["ids"].size()) << switches;
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(weights[i].id, one["ids"][i].get<int32_t>()) << switches;
      EXPECT_NEAR(weights[i].weight / total, one["probabilities"][i].get<double>(), 1e-6) << switches;
    }
  }
}

TEST(Sampling, DrawsAsOftenAsProbable) {
  const std::vector<float> logits{0.0f, 1.0f, -1.0f, 0.5f};
  std::vector<int> counts(logits.size());
  constexpr int kDraws = 20000;
  for (int draw = 0; draw < kDraws; ++draw) {
    auto work = logits;
    ++counts[static_cast<size_t>(
        inference::sample_token(work, {}, {.seed = 3}, static_cast<uint64_t>(draw)))];
  }
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  for (size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(counts[i] / static_cast<double>(kDraws), std::exp(static_cast<double>(logits[i])) / total,
                0.015);
}

class GenerateModel : public testing::TestWithParam<const char*> {
 protected:
  // All golden prompts as a file.
  std::string prompts() const {
    std::string text;
    for (const json& one : golden()["greedy"][GetParam()])
      text += dump_json(json{{"prompt", one["prompt"]}}) + "\n";
    put_file(scratch_ / "prompts.jsonl", text);
    return (scratch_ / "prompts.jsonl").string();
  }
  ScratchFolder scratch_;
};

TEST_P(GenerateModel, GreedyTextsEqualTransformers) {
  const json& wanted = golden()["greedy"][GetParam()];
  for (const int64_t batch : {1, 3, 8}) {
    const auto found = generated({.model = model_path(GetParam()),
                                  .prompts = prompts(),
                                  .max_tokens = 30,
                                  .temperature = 0,
                                  .batch = batch});
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i]["prompt"], wanted[i]["prompt"]);
      EXPECT_EQ(found[i]["ids"], wanted[i]["ids"]) << "batch " << batch << ": " << wanted[i]["prompt"];
      EXPECT_EQ(found[i]["finish_reason"], wanted[i]["ids"].size() == 30 ? "length" : "stop");
    }
  }
}

// Bit for bit: sampling would reveal any difference of the logits.
TEST_P(GenerateModel, TheBatchDoesNotChangeTheText) {
  cli::GenerateOptions options{
      .model = model_path(GetParam()), .prompts = prompts(), .max_tokens = 60, .batch = 1, .seed = 9};
  const auto unbatched = generated(options);
  for (const int64_t batch : {2, 5, 7, 32}) {
    options.batch = batch;
    EXPECT_EQ(generated(options), unbatched) << batch;
  }
}

TEST_P(GenerateModel, TheBatchDoesNotChangeTheLogits) {
  inference::ModelRuntime runtime = inference::open_model(model_path(GetParam()));
  inference::load_runtime(runtime,
                          {.compute = config::compute_options(config::config_of_sets({"device.threads=2"})),
                           .requests = inference::generation_requests(inference::kPrefillChunk, 20),
                           .cache_tokens = 100,
                           .cache_sequences = 20});
  inference::Generator generator(*runtime.executor, 0, 1);
  std::vector<inference::SequenceRequest> texts;
  for (int32_t i = 0; i < 40; ++i) {
    inference::SequenceRequest text;
    for (int32_t j = 0; j <= i * 2; ++j) text.prompt.push_back(3 + (i * 31 + j * 17) % 250);
    text.options = {.max_tokens = 3 + i % 11, .temperature = 3, .seed = static_cast<uint64_t>(i)};
    texts.push_back(text);
  }
  std::vector<std::vector<int32_t>> together(texts.size());
  generator.generate(texts, {}, [&](size_t i, const std::vector<int32_t>& made) { together[i] = made; });
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(generator.generate(texts[i].prompt, texts[i].options), together[i]) << i;
    EXPECT_EQ(together[i].size(), static_cast<size_t>(texts[i].options.max_tokens));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GenerateModel, testing::Values("llama", "gpt2"),
                         [](const auto& model) { return std::string(model.param); });

TEST(Generate, SeveralStopIds) {
  ScratchFolder scratch;
  const Path folder = scratch / "model";
  std::filesystem::copy(Path(STRATA_TASKS) / "gpt2", folder);
  const cli::GenerateOptions options{
      .model = folder.string(), .prompt = "The", .max_tokens = 12, .temperature = 0};
  const auto all = generated(options)[0]["ids"].get<std::vector<int32_t>>();
  ASSERT_EQ(all.size(), 12u);
  const int32_t stop = all[5];
  const auto first = static_cast<size_t>(std::find(all.begin(), all.end(), stop) - all.begin());
  put_file(folder / "generation_config.json", dump_json(json{{"eos_token_id", {0, stop}}}));
  const json found = generated(options)[0];
  EXPECT_EQ(found["ids"].get<std::vector<int32_t>>(),
            std::vector<int32_t>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first)));
  EXPECT_EQ(found["finish_reason"], "stop");
}

// The text that is printed incrementally equals the final text.
TEST(Generate, PlainOutputIsPromptAndText) {
  cli::GenerateOptions options{
      .model = model_path("gpt2"), .prompt = "The", .max_tokens = 25, .temperature = 0};
  options.sets = {"device.threads=1"};
  const std::string text = generated(options)[0]["text"];
  EXPECT_EQ(captured(options), "The" + text + "\n");
}

TEST(Generate, RefusesBadPromptsAndOptions) {
  set_log_level(LogLevel::kError);
  ScratchFolder scratch;
  const auto error_of = [&](const std::string& content, ErrorKind kind, cli::GenerateOptions options = {}) {
    put_file(scratch / "prompts.jsonl", content);
    options.model = model_path("gpt2");
    if (!options.prompt) options.prompts = (scratch / "prompts.jsonl").string();
    try {
      cli::run_generation(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of("{\"prompt\": \"a\"}\n{\"prompt\"", ErrorKind::kData),
              testing::HasSubstr("jsonl:2] is not valid JSON"));
  EXPECT_THAT(error_of("{\"text\": \"a\"}\n", ErrorKind::kData), testing::HasSubstr("jsonl:1]"));
  EXPECT_THAT(error_of(" \n\n", ErrorKind::kData), testing::HasSubstr("holds no prompt"));
  std::string longer;
  for (int i = 0; i < 300; ++i) longer += "12 ";
  EXPECT_THAT(error_of("\n{\"prompt\": \"" + longer + "\"}", ErrorKind::kData),
              testing::AllOf(testing::HasSubstr("jsonl:2]"), testing::HasSubstr("128 positions")));
  EXPECT_THAT(error_of("", ErrorKind::kConfig, {.prompt = longer}), testing::HasSubstr("128 positions"));
  EXPECT_THAT(error_of("", ErrorKind::kConfig, {.prompt = "a", .batch = 33}),
              testing::HasSubstr("--batch 33"));
}

class Stream : public testing::Test {
 protected:
  const data::Tokenizer tokenizer_ = data::Tokenizer::load(Path(STRATA_TASKS) / "gpt2" / "tokenizer.json");
  // The texts that are returned token by token.
  std::vector<std::string> parts_of(const std::vector<int32_t>& ids, std::vector<std::string> stops = {}) {
    inference::TextStream stream(tokenizer_, std::move(stops));
    std::vector<std::string> out;
    std::string all;
    for (const int32_t id : ids) {
      out.push_back(stream.push(id));
      all += out.back();
      if (stream.stopped()) break;
    }
    out.push_back(stream.finish());
    EXPECT_EQ(all + out.back(), stream.text());
    return out;
  }
  static std::string joined(const std::vector<std::string>& parts) {
    std::string all;
    for (const std::string& part : parts) all += part;
    return all;
  }
  // One token per byte, so that characters are split everywhere.
  std::vector<int32_t> bytes_of(const std::string& text) const {
    std::vector<int32_t> ids;
    for (const char c : text) {
      for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
        if (tokenizer_.decode_bytes(id) == std::string(1, c)) {
          ids.push_back(id);
          break;
        }
      }
    }
    EXPECT_EQ(ids.size(), text.size());
    return ids;
  }
};

TEST_F(Stream, ReturnsWholeCharacters) {
  const std::string text = "naïve 한국어 🙂 ÄÖ";
  for (const std::string& part : parts_of(bytes_of(text))) {
    EXPECT_TRUE(part.empty() || (static_cast<uint8_t>(part[0]) & 0xC0) != 0x80) << part;
    EXPECT_EQ(part.find("\uFFFD"), std::string::npos);
  }
  EXPECT_EQ(joined(parts_of(bytes_of(text))), text);
  EXPECT_EQ(joined(parts_of(bytes_of(text.substr(0, text.size() - 1)))),
            text.substr(0, text.size() - 2) + "\uFFFD");
}

TEST_F(Stream, ShowsNothingOfAStopText) {
  EXPECT_EQ(joined(parts_of(bytes_of("one two\n\nthree"), {"\n\n"})), "one two");
  EXPECT_EQ(joined(parts_of(bytes_of("one two\nthree"), {"\n\n"})), "one two\nthree");
  EXPECT_EQ(joined(parts_of(bytes_of("a한국b"), {"한국"})), "a");
  EXPECT_EQ(joined(parts_of(bytes_of("a한b"), {"한국"})), "a한b");
  EXPECT_EQ(joined(parts_of(bytes_of("aabaabaac"), {"aabaac"})), "aab");
  EXPECT_EQ(joined(parts_of(bytes_of("abcdef"), {"cd", "bcde", ""})), "ab")
      << "the stop text that is complete first";
  EXPECT_EQ(joined(parts_of(bytes_of("ends with EN"), {"END"})), "ends with EN");
  const auto parts = parts_of(bytes_of("xEND"), {"END"});
  EXPECT_EQ(parts.front(), "x") << "text that cannot begin a stop text is shown immediately";
  // A stop text inside a token.
  const auto whole = tokenizer_.encode("naïve quoted");
  EXPECT_EQ(joined(parts_of(whole, {"uot"})), "naïve q");
}

TEST_F(Stream, LongTextsEqualTheDecodedTokens) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 700; ++i) ids.push_back(1 + (i * 7919 + i / 7) % 519);
  EXPECT_EQ(joined(parts_of(ids)), tokenizer_.decode_text(ids));
  const auto metaspace = data::Tokenizer::load(Path(STRATA_TASKS) / "llama" / "tokenizer.json");
  inference::TextStream stream(metaspace, {});
  const auto words = metaspace.encode(
      "The old man looked at the sea 한국어 and the sea looked back. The old man looked at "
      "the sea, and the sea looked back at him.");
  std::string all;
  for (const int32_t id : words) all += stream.push(id);
  EXPECT_EQ(all + stream.finish(), metaspace.decode_text(words));
}

}  // namespace
}  // namespace strata::training
