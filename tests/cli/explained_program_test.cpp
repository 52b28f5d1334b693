// strata explain shows the program that strata train runs.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "fixtures/cli_fixture.h"

namespace strata {
namespace {

using nlohmann::json;

class ExplainedProgram : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    std::string text;
    for (int i = 0; i < 4000; ++i)
      text += "The program trains a model on text, step " + std::to_string(i) + ", and reports it.\n";
    for (const char* folder : {"corpus", "demo/corpus/train", "data/web", "data/code", "held-out"}) {
      std::filesystem::create_directories(folder_ / folder);
      write(std::string(folder) + "/a.txt", text);
    }
    write("demo/corpus/held-out.txt", text);
    const std::string line = dump_json(json{{"text", text.substr(0, 4000)}}) + "\n";
    for (const char* file : {"corpus/b.jsonl", "data/web/a.jsonl", "data/code/a.jsonl", "data/held-out.jsonl",
                             "data/books.jsonl"})
      write(file, line + line + line);
  }

  void make_base_model() {
    const std::string sizes =
        " --set model.family=llama3 --set model.hidden_size=64 --set model.num_hidden_layers=2 --set "
        "model.num_attention_heads=4 --set model.num_key_value_heads=2 --set model.intermediate_size=128 "
        "--set "
        "model.vocab_size=512 --set model.max_position_embeddings=1024 --set tokenizer.train.vocab_size=400";
    const Outcome made = run("train corpus/a.txt" + sizes +
                             " --set run.folder=runs/base --set training.steps=1 --set model.preset= --set "
                             "training.global_batch_size=2 --set training.sequence_length=64");
    ASSERT_EQ(made.code, 0) << made.err;
    std::filesystem::create_directories(folder_ / "models");
    std::filesystem::copy(folder_ / "runs/base/final", folder_ / "models/base");
  }

  std::string explained(const std::string& arguments) {
    const Outcome out = run("explain " + arguments + " --json");
    EXPECT_EQ(out.code, 0) << out.err;
    const json answer = parse_json<json>(out.out);
    for (const json& choice : answer.at("choices"))
      EXPECT_FALSE(choice.at("key").empty() || choice.at("value") == choice.at("from") ||
                   choice.at("why").get<std::string>().empty())
          << choice;
    return answer.at("fingerprint");
  }
  std::string trained(const std::string& arguments) {
    const Outcome out = run("train " + arguments + " --dry-run --json");
    EXPECT_EQ(out.code, 0) << out.err;
    return parse_json<json>(out.out).at("fingerprint");
  }
};

TEST_F(ExplainedProgram, IsTheTrainedProgramForEveryExample) {
  make_base_model();
  int examples = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(STRATA_EXAMPLES)) {
    // Without the recipes of data builds and files that others include.
    if (file.path().extension() != ".toml" || !contains(read_file(file.path()), "[model]")) continue;
    std::string arguments = file.path().string();
    // The example that trains on a data build belongs to another test.
    if (contains(read_file(file.path()), "build = "))
      arguments += " --set 'data.build=[]' --set 'data.train=[\"corpus/*.txt\"]'";
    SCOPED_TRACE(arguments);
    // Before the tokenizer is trained, and afterwards.
    const std::string before = explained(arguments);
    EXPECT_EQ(before, trained(arguments));
    EXPECT_EQ(explained(arguments), before);
    ++examples;
  }
  EXPECT_GE(examples, 6);
}

TEST_F(ExplainedProgram, ShowsTheOrderOfAStep) {
  const std::string run_of_three =
      "explain corpus/a.txt --set model.preset=llama3-5m --set run.folder=s --set "
      "training.micro_batch_size=2 "
      "--set training.global_batch_size=6 --set training.sequence_length=64 --schedule";
  const Outcome out = run(run_of_three + " --json");
  ASSERT_EQ(out.code, 0) << out.err;
  EXPECT_EQ(parse_json<json>(out.out),
            parse_json<json>(R"({"schedule": "1f1b", "stages": 1, "microbatches": 3, "ranks":
      [[["F", 0, 0], ["B", 0, 0], ["F", 1, 0], ["B", 1, 0], ["F", 2, 0], ["B", 2, 0]]]})"));
  const Outcome text = run(run_of_three);
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* shown : {" rank 0 F0", " B0", " F1", " B1", " F2", " B2", " ms; bubble 0.0 %"})
    EXPECT_NE(text.out.find(shown), std::string::npos) << shown << "\n" << text.out;
  EXPECT_EQ(text.out.find("arena"), std::string::npos);
  EXPECT_EQ(run(run_of_three + " --svg order.svg").out, text.out);
  const std::string picture = read_file(folder_ / "order.svg");
  EXPECT_TRUE(picture.starts_with("<svg ") && picture.ends_with("</svg>\n")) << picture;
}

// Tasks in the loop are a separate program; the ids of special tokens are attributes of instructions.
TEST_F(ExplainedProgram, IncludesTasksAndTheTokenizersIds) {
  write("piqa.jsonl",
        "{\"goal\": \"To report it\", \"sol1\": \"train a model\", \"sol2\": \"do not\", \"label\": 0}\n");
  const std::string sizes =
      " --set model.preset=bert-tiny --set model.override.vocab_size=600 --set "
      "tokenizer.train.vocab_size=500 --set "
      "training.sequence_length=64 --set training.global_batch_size=4";
  EXPECT_EQ(explained("corpus/a.txt --set run.folder=b" + sizes),
            trained("corpus/a.txt --set run.folder=b" + sizes));
  const std::string task =
      write("task.toml",
            "[run]\nfolder = \"t\"\n[model]\npreset = \"llama3-5m\"\n[data]\ntrain = [\"corpus/a.txt\"]\n"
            "[training]\nsequence_length = 64\nglobal_batch_size = 4\n"
            "[[eval.set]]\nname = \"piqa\"\ntask = \"piqa\"\npath = [\"piqa.jsonl\"]\n")
          .string();
  const std::string runs = trained(task);  // trains the tokenizer, which determines the questions' lengths
  EXPECT_EQ(explained(task), runs);
  const json programs = parse_json<json>(run("explain " + task + " --json").out).at("programs");
  EXPECT_EQ(programs.size(), 5u);
}

}  // namespace
}  // namespace strata
