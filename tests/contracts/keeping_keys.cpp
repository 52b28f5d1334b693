// Contracts of [checkpoint] and [eval], checked by the checkpoints that remain and the steps with
// measurements.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "contracts/contract.h"
#include "contracts/lab.h"

namespace strata::contracts {
namespace {

using Steps = std::vector<int64_t>;

void interval(const std::string&) {
  Lab lab;
  const auto saved = [&](const std::string& interval) {
    return lab.run({"training.steps=7", "checkpoint.interval=" + interval}).checkpoints();
  };
  EXPECT_EQ(saved("\"3 steps\""), (Steps{3, 6, 7}));
  EXPECT_EQ(saved("\"64 tokens\""), (Steps{2, 4, 6, 7})) << "32 per step";
  EXPECT_EQ(saved("\"1h\""), Steps{7});
  EXPECT_EQ(saved("\"auto\""), Steps{7}) << "not within a minute";
  EXPECT_EQ(saved("\"0.0000001s\""), (Steps{1, 2, 3, 4, 5, 6, 7}));
}

void keep_last(const std::string&) {
  Lab lab;
  for (const int64_t count : {1, 3}) {
    const Seen run = lab.run(
        {"training.steps=5", "checkpoint.keep_last=" + std::to_string(count), "checkpoint.keep_best=0"});
    EXPECT_EQ(run.checkpoints(), count == 1 ? Steps{5} : (Steps{3, 4, 5}));
    EXPECT_EQ(
        std::filesystem::path(read_file(run.folder / "checkpoints/latest")).filename().string().substr(0, 13),
        "step-00000005");
  }
}

void keep_every(const std::string&) {
  Lab lab;
  const Sets sets{"training.steps=7", "checkpoint.keep_last=1", "checkpoint.keep_best=0"};
  EXPECT_EQ(lab.run(sets + Sets{"checkpoint.keep_every=\"3 steps\""}).checkpoints(), (Steps{3, 6, 7}));
  EXPECT_EQ(lab.run(sets + Sets{"checkpoint.keep_every=\"never\""}).checkpoints(), Steps{7});
}

// A run in which the loss of one held-out set falls and the loss of the other, with different tokens, rises.
struct Turning {
  Turning() {
    std::vector<uint16_t> same(900), other(200);
    for (size_t i = 0; i < same.size(); ++i) same[i] = static_cast<uint16_t>(1 + i % 7);
    for (size_t i = 0; i < other.size(); ++i)
      other[i] = static_cast<uint16_t>(i % 2 == 0 ? 1 + i / 2 % 7 : 100 + i * i % 150);
    training::put_tokens(lab.path("same.bin"), same);
    training::put_tokens(lab.path("other.bin"), other);
  }
  Seen run(const Sets& sets, int64_t steps = 6) {
    return lab.run(kFlat +
                   Sets{"data.train=" + lab.list({"same.bin"}), "data.valid=" + lab.list({"same.bin"}),
                        "optimizer.lr=0.03", "eval.interval=\"1 steps\"", "checkpoint.keep_last=1",
                        "training.steps=" + std::to_string(steps),
                        "eval.set=[{name=\"other\", path=" + lab.list({"other.bin"}) + "}]"} +
                   sets);
  }
  Lab lab;
};
int64_t step_of_least(const std::vector<double>& values) {
  return std::min_element(values.begin(), values.end()) - values.begin() + 1;
}

void keep_best(const std::string&) {
  Turning turning;
  const Sets other{"checkpoint.best_metric=\"eval/other/loss\""};
  for (const int64_t count : {0, 1, 2}) {
    const Seen run = turning.run(other + Sets{"checkpoint.keep_best=" + std::to_string(count)});
    const auto values = run.values("eval/other/loss");
    ASSERT_EQ(values.size(), 6u);
    Steps order{1, 2, 3, 4, 5, 6};
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return values[static_cast<size_t>(a) - 1] < values[static_cast<size_t>(b) - 1];
    });
    Steps wanted(order.begin(), order.begin() + count);
    if (std::find(wanted.begin(), wanted.end(), 6) == wanted.end()) wanted.push_back(6);
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(run.checkpoints(), wanted);
  }
}

void best_metric(const std::string&) {
  Turning turning;
  const Seen valid = turning.run({"checkpoint.best_metric=\"eval/valid/loss\"", "checkpoint.keep_best=1"});
  const Seen other = turning.run({"checkpoint.best_metric=\"eval/other/loss\"", "checkpoint.keep_best=1"});
  const int64_t best = step_of_least(valid.values("eval/valid/loss")),
                least = step_of_least(other.values("eval/other/loss"));
  ASSERT_NE(best, least) << "the losses must diverge";
  EXPECT_EQ(valid.checkpoints(), best == 6 ? Steps{6} : (Steps{best, 6}));
  EXPECT_EQ(other.checkpoints(), least == 6 ? Steps{6} : (Steps{least, 6}));
}

Steps evaluated_at(const Seen& run) {
  Steps steps;
  for (const json& step : run.steps) {
    if (step.contains("eval/valid/loss")) steps.push_back(step["step"]);
  }
  return steps;
}
// The last step is always evaluated, unless evaluation is off.
void eval_interval(const std::string&) {
  Lab lab;
  const Sets sets{"training.steps=5", "data.valid=" + lab.list({"train.bin"})};
  const auto at = [&](const std::string& interval) {
    return evaluated_at(lab.run(sets + Sets{"eval.interval=" + interval}));
  };
  EXPECT_EQ(at("\"2 steps\""), (Steps{2, 4, 5}));
  EXPECT_EQ(at("\"96 tokens\""), (Steps{3, 5}));
  EXPECT_EQ(at("\"never\""), Steps{});
  EXPECT_EQ(at("\"1h\""), Steps{5});
}

// Only the first tokens, as if the file ended there.
void max_tokens(const std::string&) {
  Lab lab;
  const auto held = training::tiny_tokens(400, 31);
  training::put_tokens(lab.path("all.bin"), held);
  training::put_tokens(lab.path("part.bin"), {held.begin(), held.begin() + 75});
  const auto loss = [&](const char* file, const std::string& most) {
    return lab.run({"data.valid=" + lab.list({file}), "eval.max_tokens=" + most}).last("eval/valid/loss");
  };
  EXPECT_EQ(loss("all.bin", "75"), loss("part.bin", "1000"));
  EXPECT_NE(loss("all.bin", "75"), loss("all.bin", "400"));
  EXPECT_TRUE(
      has(lab.refusal({"data.valid=" + lab.list({"all.bin"}), "eval.max_tokens=1"}), "eval.max_tokens"))
      << "one token predicts nothing";
  // "auto": at least four windows.
  EXPECT_EQ(loss("all.bin", "\"auto\""), loss("all.bin", "64"));
}

struct Samples {
  Samples() { lab.text(); }
  Seen run(const Sets& sets) {
    return lab.run(
        Sets{"data.train=" + lab.list({"corpus.txt"}), "training.steps=4", "eval.interval=\"2 steps\""} +
        sets);
  }
  Lab lab;
};
// A run writes the same text as `strata generate` with the same settings.
void sample_prompts(const std::string&) {
  Samples samples;
  const Seen run = samples.run({"eval.sample_prompts=[\"the cat\", \"mat\"]", "eval.sample_tokens=5"});
  std::vector<json> written;
  for (const json& event : run.events) {
    if (event["event"] == "sample") written.push_back(event);
  }
  ASSERT_EQ(written.size(), 4u) << "two per evaluation";
  size_t last = 2;
  for (const std::string prompt : {"the cat", "mat"}) {
    const json made =
        strata(samples.lab.path("x"), {"generate", "--model", run.checkpoint(4).string(), "--prompt", prompt,
                                       "--max-tokens", "5", "--temperature", "0.8", "--top-p", "0.95",
                                       "--seed", "1234", "--set", "precision.compute=\"fp32\"", "--json"})
            .parsed();
    EXPECT_EQ(written[last]["prompt"], prompt);
    EXPECT_EQ(written[last]["text"], prompt + made["text"].get<std::string>());
    EXPECT_EQ(written[last++]["at_step"], 4);
  }
}

void sample_tokens(const std::string&) {
  Samples samples;
  std::vector<std::string> texts;
  for (const int tokens : {1, 4, 12})
    texts.push_back(
        samples.run({"eval.sample_prompts=[\"the cat\"]", "eval.sample_tokens=" + std::to_string(tokens)})
            .event("sample")["text"]);
  EXPECT_LT(texts[0].size(), texts[1].size());
  EXPECT_LT(texts[1].size(), texts[2].size());
  for (const json& event : samples.run({"eval.sample_tokens=0"}).events) EXPECT_NE(event["event"], "sample");
}

// Named sets of tokens.
void set(const std::string&) {
  Lab lab;
  const auto held = training::tiny_tokens(400, 31);
  training::put_tokens(lab.path("all.bin"), held);
  training::put_tokens(lab.path("part.bin"), {held.begin(), held.begin() + 75});
  const Seen run = lab.run(
      {"data.pack=\"stream\"", "eval.max_tokens=1000"},
      "[[eval.set]]\nname = \"whole\"\npath = " + lab.list({"all.bin"}) +
          "\n[[eval.set]]\nname = \"begin\"\nmax_tokens = 75\npath = " + lab.list({"all.bin"}) + "\n");
  EXPECT_NEAR(run.last("eval/whole/loss"), evaluated(lab, run, "all.bin"), 1e-5);
  EXPECT_NEAR(run.last("eval/begin/loss"), evaluated(lab, run, "part.bin"), 1e-5);
  training::put_tokens(lab.path("one.bin"), {5});
  EXPECT_TRUE(has(lab.refusal({}, "[[eval.set]]\nname = \"short\"\npath = " + lab.list({"one.bin"}) + "\n"),
                  "eval.set short"));
  const std::string twice = "[[eval.set]]\nname = \"a\"\npath = " + lab.list({"all.bin"}) + "\n";
  EXPECT_TRUE(has(lab.refusal({}, twice + twice), "twice"));
  EXPECT_TRUE(has(lab.refusal({}, "[[eval.set]]\nname = \"a\"\n"), "eval.set.0.path"));
}

// All questions or only the first, scored as by `strata eval --task`.
void task(const std::string&) {
  Lab lab;
  lab.text();
  lab.put("piqa.jsonl", R"({"goal": "the cat", "sol1": "number 5 sat", "sol2": "mat", "label": 0}
{"goal": "the", "sol1": "mat mat mat", "sol2": "cat", "label": 0}
{"goal": "number", "sol1": "sat", "sol2": "the", "label": 1}
)");
  const Seen run = lab.run(
      {"data.train=" + lab.list({"corpus.txt"}), "data.pack=\"stream\"", "training.steps=3"},
      "[[eval.set]]\nname = \"all\"\ntask = \"piqa\"\npath = " + lab.list({"piqa.jsonl"}) +
          "\n[[eval.set]]\nname = \"first\"\ntask = \"piqa\"\nlimit = 1\npath = " + lab.list({"piqa.jsonl"}) +
          "\n");
  for (const auto& [name, limit] : std::map<std::string, std::string>{{"all", "3"}, {"first", "1"}}) {
    const json scored = strata(lab.path("x"), {"eval", "--model", run.checkpoint(3).string(), "--task",
                                               "piqa", "--jsonl", lab.path("piqa.jsonl").string(), "--limit",
                                               limit, "--set", "precision.compute=\"fp32\"", "--json"})
                            .parsed();
    EXPECT_EQ(run.last("eval/" + name + "/acc"), scored["acc"]);
    EXPECT_EQ(run.last("eval/" + name + "/acc_norm"), scored["acc_norm"]);
    EXPECT_EQ(scored["samples"], std::stoi(limit));
  }
  const std::string set = "[[eval.set]]\nname = \"a\"\npath = " + lab.list({"piqa.jsonl"}) + "\n";
  EXPECT_TRUE(has(lab.refusal({}, set + "task = \"pika\"\n"), "piqa"));
  EXPECT_TRUE(has(lab.refusal({}, set + "limit = 3\n"), "without a task"));
}

}  // namespace

Contracts keeping_keys() {
  return {{"checkpoint.interval", interval},
          {"checkpoint.keep_last", keep_last},
          {"checkpoint.keep_every", keep_every},
          {"checkpoint.keep_best", keep_best},
          {"checkpoint.best_metric", best_metric},
          {"eval.interval", eval_interval},
          {"eval.max_tokens", max_tokens},
          {"eval.sample_prompts", sample_prompts},
          {"eval.sample_tokens", sample_tokens},
          {"eval.set.name", set},
          {"eval.set.path", set},
          {"eval.set.max_tokens", set},
          {"eval.set.task", task},
          {"eval.set.limit", task}};
}

}  // namespace strata::contracts
