// Evaluation tasks against lm-evaluation-harness (tools/golden/make_task_golden.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/actions.h"
#include "evaluation/task_format.h"
#include "evaluation/task_text.h"
#include "fixtures/scratch_folder.h"

namespace strata::training {
namespace {

using nlohmann::json;

Path golden(const std::string& name) {
  return Path(STRATA_TASKS) / name;
}

json evaluated(cli::EvalOptions options) {
  options.json = true;
  options.sets.push_back("device.threads=1");
  testing::internal::CaptureStdout();
  const int code = cli::run_evaluation(options);
  std::fflush(stdout);
  const std::string out = testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0);
  return parse_json<json>(out);
}
std::vector<json> lines_of(const Path& path) {
  std::vector<json> lines;
  const std::string text = read_file(path);
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    lines.push_back(parse_json<json>(text.substr(at, text.find('\n', at) - at)));
  return lines;
}

struct Case {
  const char *model, *task, *file;
};
class TaskGolden : public testing::TestWithParam<Case> {};

TEST_P(TaskGolden, EqualsTheHarness) {
  set_log_level(LogLevel::kError);
  const auto& [model, task, file] = GetParam();
  const ScratchFolder scratch;
  const json expected = parse_json<json>(read_file(golden("expected.json")))[model][task];
  const json found = evaluated({.model = golden(model).string(),
                                .task = task,
                                .jsonl = golden(file).string(),
                                .samples = (scratch / "samples.jsonl").string()});
  EXPECT_EQ(found["samples"], expected["samples"].size());
  for (const auto& [name, value] : expected["metrics"].items()) {
    EXPECT_NEAR(found.at(name).get<double>() / std::max(1.0, std::abs(value.get<double>())),
                value.get<double>() / std::max(1.0, std::abs(value.get<double>())), 1e-4)
        << name;
  }
  const auto samples = lines_of(scratch / "samples.jsonl");
  ASSERT_EQ(samples.size(), expected["samples"].size());
  for (size_t i = 0; i < samples.size(); ++i) {
    const json& wanted = expected["samples"][i];
    EXPECT_EQ(samples[i]["acc"], static_cast<int>(wanted["acc"].get<double>())) << i;
    if (!wanted["acc_norm"].is_null()) {
      EXPECT_EQ(samples[i]["acc_norm"], static_cast<int>(wanted["acc_norm"].get<double>())) << i;
    }
    EXPECT_EQ(samples[i]["greedy"], wanted["greedy"]) << i;
    ASSERT_EQ(samples[i]["loglikelihoods"].size(), wanted["loglikelihoods"].size());
    for (size_t c = 0; c < wanted["loglikelihoods"].size(); ++c) {
      EXPECT_NEAR(samples[i]["loglikelihoods"][c].get<double>(), wanted["loglikelihoods"][c].get<double>(),
                  1e-4)
          << "question " << i << " choice " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tasks, TaskGolden,
    testing::Values(Case{"llama", "hellaswag", "hellaswag.jsonl"}, Case{"llama", "arc_easy", "arc.jsonl"},
                    Case{"llama", "piqa", "piqa.jsonl"}, Case{"llama", "lambada_openai", "lambada.jsonl"},
                    Case{"gpt2", "hellaswag", "hellaswag.jsonl"}, Case{"gpt2", "arc_easy", "arc.jsonl"},
                    Case{"gpt2", "piqa", "piqa.jsonl"}, Case{"gpt2", "lambada_openai", "lambada.jsonl"}),
    [](const auto& one) { return std::string(one.param.model) + "_" + one.param.task; });

TEST(TaskGoldenFile, HasRightAndWrongAnswers) {
  const json expected = parse_json<json>(read_file(golden("expected.json")));
  for (const char* model : {"llama", "gpt2"}) {
    const double acc = expected[model]["lambada_openai"]["metrics"]["acc"];
    EXPECT_TRUE(acc > 0 && acc < 1) << "some words are greedy, some not";
  }
}

TEST(TaskText, IsPreparedAsInPython) {
  EXPECT_EQ(evaluation::capitalized(""), "");
  EXPECT_EQ(evaluation::capitalized("iS tall and HE"), "Is tall and he");
  EXPECT_EQ(evaluation::capitalized("ÜBER NACHT ΟΔΟΣ"), "Über nacht οδος");
  EXPECT_EQ(evaluation::capitalized("đespite"), "Đespite");
  EXPECT_EQ(evaluation::capitalized("ǆ"), "ǅ");
  EXPECT_EQ(evaluation::without_wikihow_marks("  [header] a [title] b [x\ny] c  [] d   e[ "),
            " a. b [x\ny] c  d  e[");
  EXPECT_EQ(evaluation::split_last_word("a b  c").before, "a b ");
  EXPECT_EQ(evaluation::split_last_word("a b ").word, "");
  EXPECT_EQ(evaluation::split_last_word("single").before, "");
  EXPECT_EQ(evaluation::split_last_word("a b\nc").word, "b\nc");
}

class TaskFile : public testing::Test {
 protected:
  evaluation::Task read(const std::string& name, const std::string& text, int64_t limit = 0) {
    put_file(scratch_ / "task.jsonl", text);
    return evaluation::read_task(name, scratch_ / "task.jsonl", limit);
  }
  std::string error_of(const std::string& name, const std::string& text) {
    try {
      read(name, text);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }
  ScratchFolder scratch_;
};

TEST_F(TaskFile, AuthorsFormats) {
  const evaluation::Task arc =
      read("arc_challenge", R"({"id":"x","question":{"stem":"Why?","choices":[{"text":"a","label":"A"},)"
                            R"({"text":"b","label":"B"}]},"answerKey":"B"})");
  ASSERT_EQ(arc.items.size(), 1u);
  EXPECT_EQ(arc.items[0].context, "Question: Why?\nAnswer:");
  EXPECT_EQ(arc.items[0].choices, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(arc.items[0].gold, 1);
  const evaluation::Task swag =
      read("hellaswag",
           "\n{\"activity_label\":\"A\",\"ctx_a\":\"b\",\"ctx_b\":\"c\",\"endings\":[\"d\",\"e\"],"
           "\"label\":1}\r\n\n");
  EXPECT_EQ(swag.items[0].context, "A: b C");
  EXPECT_EQ(swag.items[0].gold, 1);
  EXPECT_EQ(swag.items[0].line, 2);
  EXPECT_EQ(read("lambada_openai", "{\"text\":\"a b\"}\n{\"text\":\"c d\"}\nno json", 2).items.size(), 2u);
}

TEST_F(TaskFile, NamesBadInput) {
  EXPECT_THAT(error_of("piqa", "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":0}\n{\"goal\":"),
              testing::HasSubstr("task.jsonl:2] is not valid JSON"));
  EXPECT_THAT(error_of("piqa", "[1]"), testing::HasSubstr("task.jsonl:1] found array"));
  EXPECT_THAT(error_of("piqa", "{\"goal\":\"g\",\"sol1\":\"a\",\"label\":0}"),
              testing::HasSubstr("no \"sol2\""));
  EXPECT_THAT(error_of("piqa", "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":-1}"),
              testing::HasSubstr("found -1 in \"label\""));
  EXPECT_THAT(error_of("hellaswag", "{\"activity_label\":1}"), testing::HasSubstr("found number"));
  EXPECT_THAT(
      error_of("hellaswag",
               "{\"activity_label\":\"a\",\"ctx_a\":\"\",\"ctx_b\":\"\",\"endings\":[],\"label\":\"0\"}"),
      testing::HasSubstr("\"endings\""));
  EXPECT_THAT(error_of("arc_easy",
                       "{\"question\":\"q\",\"choices\":{\"text\":[\"a\"],\"label\":[\"A\"]},"
                       "\"answerKey\":\"B\"}"),
              testing::HasSubstr("answerKey \"B\""));
  EXPECT_THAT(error_of("lambada_openai", "\n\n"), testing::HasSubstr("has no question"));
  EXPECT_THAT(error_of("lambada_openai", "{\"text\":\"\xff b\"}"), testing::HasSubstr("valid JSON"));
  try {
    read("helaswag", "{}");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean \"hellaswag\""));
  }
  EXPECT_THROW(evaluation::read_task("piqa", scratch_ / "nowhere.jsonl"), ConfigError);
}

TEST_F(TaskFile, RefusesContinuationsLongerThanTheModel) {
  std::string text = "{\"text\":\"a ";
  for (int i = 0; i < 200; ++i) text += "bcdefghij";
  put_file(scratch_ / "long.jsonl", text + "\"}\n");
  const cli::EvalOptions options{.model = golden("gpt2").string(),
                                 .task = "lambada_openai",
                                 .jsonl = (scratch_ / "long.jsonl").string()};
  EXPECT_THROW(cli::run_evaluation(options), DataError);
  cli::EvalOptions no_file = options;
  no_file.jsonl = "";
  EXPECT_THROW(cli::run_evaluation(no_file), ConfigError);
}

}  // namespace
}  // namespace strata::training
