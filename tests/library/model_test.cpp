#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "library/library_fixture.h"

namespace strata {
namespace {

class OpenModel : public Library {
 protected:
  // Trained once for all tests of this suite.
  static const std::string& run() {
    static const TrainedOnce once;
    return once.folder;
  }

 private:
  struct TrainedOnce {
    TrainedOnce() {
      put_file(scratch.path() / "text.txt", sentences(300));
      const Config config =
          Config::parse(kSmallRun, {"data.train=[\"" + (scratch.path() / "text.txt").string() + "\"]",
                                    "run.folder=\"" + (scratch.path() / "run").string() + "\"",
                                    "training.steps=40", "optimizer.lr=3e-3"});
      folder = train(plan(config)).folder;
    }
    ScratchFolder scratch;
    std::string folder;
  };
};

double log_probability(std::span<const float> logits, std::int32_t id) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  return static_cast<double>(logits[static_cast<std::size_t>(id)]) - std::log(sum);
}

TEST_F(OpenModel, KnowsItsSizes) {
  const Model model = Model::open(run());
  EXPECT_EQ(model.vocab_size(), 300);
  EXPECT_EQ(model.max_length(), 64);
  EXPECT_GT(model.parameters(), 20000);
  EXPECT_EQ(model.decode(model.encode("The number 7")), "The number 7");
  EXPECT_TRUE(has(model.folder(), run()));
}

TEST_F(OpenModel, LogitsAgreeWithTheLossOfEvaluation) {
  Model model = Model::open(run());
  std::string text = sentences(4);
  std::vector<std::int32_t> ids = model.encode(text);
  ids.resize(33);
  text = model.decode(ids);
  ASSERT_EQ(model.encode(text), ids);
  const std::vector<float> logits = model.logits(ids, 0);
  ASSERT_EQ(std::ssize(logits), 33 * 300);
  double loss = 0;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i)
    loss -= log_probability(std::span(logits).subspan(300 * i, 300), ids[i + 1]) / 32;
  // The window of 32 targets; the end of text that follows begins another.
  const EvalReport report = model.evaluate(text, {.sequence_length = 33});
  EXPECT_EQ(report.tokens, 33);
  const double end = -log_probability(std::span(logits).last(300), 0);
  EXPECT_NEAR(report.loss, (32 * loss + end) / 33, 1e-4);
  EXPECT_NEAR(report.perplexity, std::exp(report.loss), 1e-9);
  EXPECT_NEAR(*report.bits_per_byte, report.loss * 33 / std::log(2.0) / static_cast<double>(text.size()),
              1e-9);
  const std::vector<float> last = model.logits(ids);
  for (std::size_t id = 0; id < 300; ++id) EXPECT_NEAR(last[id], logits[32 * 300 + id], 1e-4);
}

TEST_F(OpenModel, TextsDoNotDependOnTheBatch) {
  Model model = Model::open(run());
  const std::vector<std::string> prompts{"The number 1", "The", "The number 250 follows"};
  std::vector<std::string> streamed(prompts.size());
  const GenerateOptions options{.max_tokens = 12, .seed = 3};
  const auto made = model.generate(
      prompts, options, {.text = [&](std::size_t i, std::string_view text) { streamed[i] += text; }});
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(streamed[i], made[i].text);
    EXPECT_EQ(model.generate(prompts[i], options).text, made[i].text);
    EXPECT_LE(std::ssize(made[i].tokens), 12);
  }
}

TEST_F(OpenModel, GreedyTextTakesTheGreatestLogit) {
  Model model = Model::open(run());
  std::vector<std::int32_t> ids = model.encode("The number");
  const Generation made = model.generate("The number", {.max_tokens = 5, .temperature = 0});
  for (const std::int32_t id : made.tokens) {
    const std::vector<float> logits = model.logits(ids);
    EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), id);
    ids.push_back(id);
  }
}

TEST_F(OpenModel, StopsBeforeAStopText) {
  Model model = Model::open(run());
  const Generation whole = model.generate("The number", {.max_tokens = 20, .temperature = 0});
  ASSERT_GT(whole.text.size(), 6u);
  const std::string stop = whole.text.substr(4, 2);
  const Generation cut = model.generate("The number", {.max_tokens = 20, .temperature = 0, .stop = {stop}});
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
  EXPECT_TRUE(cut.stopped);
}

TEST_F(OpenModel, ModelsOfTwoThreadsDoNotDisturbEachOther) {
  const GenerateOptions options{.max_tokens = 20, .seed = 5};
  const auto text = [&](const char* prompt) { return Model::open(run()).generate(prompt, options).text; };
  const std::string a = text("The number"), b = text("follows");
  std::string same_a, same_b;
  std::thread first([&] { same_a = text("The number"); });
  std::thread second([&] { same_b = text("follows"); });
  first.join();
  second.join();
  EXPECT_EQ(same_a, a);
  EXPECT_EQ(same_b, b);
}

TEST_F(OpenModel, EvaluationCanBeStopped) {
  Model model = Model::open(run());
  put_file(folder("long.txt"), sentences(2000));
  const EvalReport stopped = model.evaluate_text(
      folder("long.txt").string(), {.sequence_length = 32, .go_on = [](double) { return false; }});
  EXPECT_TRUE(stopped.stopped);
  const EvalReport whole = model.evaluate_text(folder("long.txt").string(), {.sequence_length = 32});
  EXPECT_FALSE(whole.stopped);
  EXPECT_GT(whole.tokens, stopped.tokens);
  EXPECT_LT(whole.loss, std::log(300.0));
}

TEST_F(OpenModel, ErrorsHaveTheirKind) {
  Model model = Model::open(run());
  EXPECT_EQ(error_of([] { Model::open("/nowhere"); }).kind(), ErrorKind::kConfig);
  EXPECT_EQ(error_of([&] { model.logits({}); }).kind(), ErrorKind::kConfig);
  EXPECT_EQ(error_of([&] { model.logits(std::vector<std::int32_t>{1, 2}, 2); }).kind(), ErrorKind::kConfig);
  EXPECT_EQ(error_of([&] { model.logits(std::vector<std::int32_t>{1, 900}); }).kind(), ErrorKind::kConfig);
  EXPECT_EQ(error_of([&] { model.evaluate("x", {.sequence_length = 65}); }).kind(), ErrorKind::kConfig);
  EXPECT_EQ(error_of([&] { model.generate("x", {.batch = 0}); }).kind(), ErrorKind::kConfig);
  EXPECT_EQ(error_of([&] { Model::open(run(), {.sets = {"training.stepz=1"}}); }).kind(), ErrorKind::kConfig);
}

}  // namespace
}  // namespace strata
