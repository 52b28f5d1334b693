// strata check causality: the built program on causal models, and its report on a model that leaks.

#include "base/json.h"
#include "cli/causality_report.h"
#include "fixtures/cli_fixture.h"

namespace strata::cli {
namespace {

using nlohmann::json;

class CausalityCommand : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write("run.toml", R"([model]
family = "llama3"
vocab_size = 300
hidden_size = 32
intermediate_size = 48
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 64
[data]
train = ["t.bin"]
[training]
sequence_length = 32
global_batch_size = 8
micro_batch_size = 2
[memory]
budget = "1GB"
[device]
threads = 1
)");
  }
};

TEST_F(CausalityCommand, ChecksARunAsItTrains) {
  const Outcome outcome = run("check causality run.toml --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json answer = parse_json<json>(outcome.out);
  EXPECT_EQ(answer.at("causal"), true);
  EXPECT_TRUE(answer.at("leaks").empty());
  ASSERT_EQ(answer.at("modes").size(), 2U);
  EXPECT_EQ(answer["modes"][0]["mode"], "train");
  EXPECT_EQ(answer["modes"][0]["micro_batches"], 4);
  EXPECT_EQ(answer["modes"][0]["positions"], 31);
  EXPECT_EQ(answer["modes"][1]["mode"], "evaluate");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs")) << "a check writes nothing";
  const Outcome text = run("check causality run.toml --positions 2");
  EXPECT_TRUE(text.out.starts_with("causal: ") && contains(text.out, "not tried")) << text.out;
}

TEST_F(CausalityCommand, RejectsSeveralProcesses) {
  for (const char* launcher : {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", "PMI_RANK=0 PMI_SIZE=3"}) {
    const Outcome outcome = run("check causality run.toml", launcher);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_TRUE(contains(outcome.err, "processes") && contains(outcome.err, "--ranks")) << outcome.err;
    EXPECT_EQ(run("check drift --model nowhere", launcher).code, 2);
    EXPECT_TRUE(contains(run("check drift --model nowhere", launcher).err, "processes"));
  }
  const Outcome alone =
      run("check causality run.toml --positions 1", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1");
  EXPECT_EQ(alone.code, 0) << alone.err;
}

TEST_F(CausalityCommand, RanksAreThreads) {
  for (const char* layout :
       {"--set parallel.tensor=2", "--set parallel.context=2 --set parallel.context_kind=ulysses",
        "--set parallel.zero=3", "--set parallel.pipeline=2"}) {
    const Outcome outcome = run(std::string("check causality run.toml --json --ranks 2 ") + layout);
    ASSERT_EQ(outcome.code, 0) << layout << outcome.err;
    EXPECT_EQ(parse_json<json>(outcome.out).at("causal"), true) << layout;
  }
}

TEST_F(CausalityCommand, ChecksAModelDirectory) {
  const std::string model =
      std::string("check causality --json --positions 4 --set device.threads=1 --model ") + STRATA_TEST_MODEL;
  const json answer = parse_json<json>(run(model).out);
  EXPECT_EQ(answer.at("causal"), true);
  EXPECT_EQ(answer.at("modes").size(), 2U);
  // If training does not fit, only evaluation is checked, and the report states it.
  const json small = parse_json<json>(run(model + " --set memory.budget=\"100 KB\"").out);
  ASSERT_EQ(small.at("modes").size(), 1U);
  EXPECT_EQ(small["modes"][0]["mode"], "evaluate");
  EXPECT_TRUE(contains(dump_json(small.at("not_covered")), "training")) << small;
}

TEST_F(CausalityCommand, RejectsModelsThatAreNotCausal) {
  for (const char* arguments : {"", "run.toml --model x", "run.toml --set model.family=bert"}) {
    const Outcome outcome = run(std::string("check causality ") + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_TRUE(outcome.out.empty());
  }
  EXPECT_TRUE(contains(run("check causality run.toml --set model.family=bert").err, "bert is an encoder"));
}

// No built-in model leaks, so the report is tested on made-up findings.
CausalityReport leaking() {
  evaluation::Causality found;
  found.leaks.push_back({.op = "attention",
                         .layer = 3,
                         .value = "layers.3.attention.out",
                         .largest = 0.25,
                         .sequence = 1,
                         .row = 4,
                         .changed_from = 7,
                         .changed_to = 9});
  found.leaks.push_back({.op = "linear_cross_entropy", .value = "loss_sum", .largest = 2, .in_loss = true});
  CausalityReport report;
  report.answers.push_back({.request = {.kind = program::Kind::kTrain}});
  report.answers.push_back({.request = {.kind = program::Kind::kEvaluate}, .found = found});
  return report;
}

TEST(CausalityReport, NamesLeaks) {
  const CausalityReport report = leaking();
  EXPECT_EQ(report.exit_code(), 3);
  const json answer = parse_json<json>(json_of(report));
  EXPECT_EQ(answer.at("causal"), false);
  const json& leak = answer.at("leaks").at(0);
  EXPECT_EQ(leak.at("op"), "attention");
  EXPECT_EQ(leak.at("layer"), 3);
  EXPECT_EQ(leak.at("mode"), "evaluate");
  EXPECT_EQ(leak.at("largest"), 0.25);
  EXPECT_EQ(answer.at("leaks").at(1).at("layer"), nullptr);
  const std::string text = text_of(report);
  EXPECT_TRUE(text.starts_with("NOT CAUSAL")) << text;
  EXPECT_TRUE(contains(text, "attention of layer 3: row 4") && contains(text, "7 to 8")) << text;
  EXPECT_TRUE(contains(text, "sum of the losses")) << text;
}

TEST(CausalityReport, IsCausalWithoutLeaks) {
  CausalityReport report = leaking();
  report.answers[1].found.leaks.clear();
  EXPECT_EQ(report.exit_code(), 0);
  EXPECT_EQ(parse_json<json>(json_of(report)).at("causal"), true);
}

}  // namespace
}  // namespace strata::cli
