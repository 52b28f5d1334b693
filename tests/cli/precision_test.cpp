// strata check precision: runs in 8 and 4 bits, before and after training, and weights that a recipe cannot hold.

#include <map>

#include "base/json.h"
#include "fixtures/cli_fixture.h"

namespace strata::cli {
namespace {

using nlohmann::json;

class PrecisionCommand : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    std::string text;
    for (int i = 0; i < 3000; ++i) text += "Line " + std::to_string(i * i % 977) + " of a text.\n";
    write("text.txt", text);
    write("run.toml", R"([run]
folder = "run"
[tokenizer]
train = { vocab_size = 300 }
[data]
train = ["text.txt"]
[model]
family = "llama3"
vocab_size = 300
hidden_size = 32
intermediate_size = 48
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 64
[training]
sequence_length = 32
global_batch_size = 8
micro_batch_size = 4
steps = 4
[precision]
compute = "fp8"
keep = ["head"]
[memory]
budget = "1GB"
[device]
threads = 1
)");
  }
};

json product_of(const json& check, const char* role, int layer) {
  for (const json& product : check.at("products"))
    if (product.at("role") == role && product.at("layer") == layer) return product;
  return {};
}

TEST_F(PrecisionCommand, ChecksARunBeforeAndAfterTraining) {
  const Outcome before = run("check precision run.toml --json");
  ASSERT_EQ(before.code, 0) << before.err;
  const json first = parse_json<json>(before.out);
  EXPECT_EQ(first.at("recipe"), "block");
  EXPECT_EQ(first.at("step"), 1);
  EXPECT_EQ(first.at("fits"), true);
  ASSERT_EQ(first.at("products").size(), 2U * 4 * 3);
  double worst = 200;
  for (const json& product : first.at("products")) {
    worst = std::min(worst, product.at("snr_db").get<double>());
    ASSERT_EQ(product.at("operands").size(), 2U);
    for (const json& operand : product.at("operands")) {
      EXPECT_EQ(operand.at("format"), "e4m3");
      EXPECT_GT(operand.at("snr_db"), 20);
      EXPECT_EQ(operand.at("saturated"), 0);
      EXPECT_GE(operand.at("flushed"), 0);
    }
  }
  EXPECT_EQ(first.at("worst"), worst);
  EXPECT_EQ(product_of(first, "forward", 1).at("op"), "scaled_linear");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/checkpoints")) << "a check makes no step";

  const Outcome trained = run("train run.toml");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_TRUE(contains(trained.err,
                       "precision: fp8 (block), computed on the processor for studies; not faster "
                       "than bf16\n"))
      << trained.err;
  const std::string lines = trained.err.substr(0, trained.err.find('\n'));
  EXPECT_TRUE(contains(lines, "precision: ")) << "not in the first line: " << lines;
  for (const char* subject : {"run", "run.toml", "--model run", "--model run@latest"}) {
    const Outcome after = run(std::string("check precision --json ") + subject);
    ASSERT_EQ(after.code, 0) << after.err;
    const json second = parse_json<json>(after.out);
    EXPECT_EQ(second.at("step"), 5) << subject;
    EXPECT_NE(product_of(second, "forward", 0), product_of(first, "forward", 0));
  }
  // The finished model has other bits, and no step.
  const Outcome model = run("check precision --model run/final --json");
  ASSERT_EQ(model.code, 0) << model.err;
  EXPECT_EQ(parse_json<json>(model.out).at("step"), 1);
  // As a model directory outside a run.
  std::filesystem::copy(folder_ / "run/final", folder_ / "exported",
                        std::filesystem::copy_options::recursive);
  const std::string outside =
      "check precision --model exported --json --set precision.compute=fp4 --set device.threads=1 "
      "--set training.sequence_length=32 --set 'precision.keep=[\"head\"]'";
  const Outcome exported = run(outside + " --set 'data.train=[\"text.txt\"]'");
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_EQ(parse_json<json>(exported.out).at("recipe"), "nvfp4");
  const Outcome no_data = run(outside);
  EXPECT_EQ(no_data.code, 2);
  EXPECT_TRUE(contains(no_data.err, "[data")) << no_data.err;
}

TEST_F(PrecisionCommand, PrintsTheWorstFirst) {
  const Outcome text = run("check precision run.toml --set precision.compute=fp4");
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "recipe nvfp4") && contains(text.out, "24 matmuls, worst first") &&
              contains(text.out, "e2m1") && contains(text.out, "all matmuls are above the gate"))
      << text.out;
  EXPECT_TRUE(contains(text.out, "and 12 more")) << text.out;
}

// Weights of 1e-11 are below half the least number of a block with the least scale.
TEST_F(PrecisionCommand, FailsForWeightsThatTheRecipeLoses) {
  const std::string tiny = "check precision run.toml --set model.override.initializer_range=1e-11";
  const Outcome outcome = run(tiny + " --json");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  const json check = parse_json<json>(outcome.out);
  EXPECT_EQ(check.at("fits"), false);
  const json product = product_of(check, "forward", 0);
  EXPECT_EQ(product.at("operands")[1].at("flushed"), 1);
  EXPECT_LT(product.at("snr_db"), product.at("gate_db"));
  const Outcome text = run(tiny);
  EXPECT_EQ(text.code, 3);
  EXPECT_TRUE(contains(text.out, "matmuls are below the gate") && contains(text.out, "precision.keep"))
      << text.out;
}

TEST_F(PrecisionCommand, NamesWhatToSet) {
  for (const char* plain :
       {"run.toml --set precision.compute=bf16", "run.toml --set precision.compute=auto"}) {
    const Outcome outcome = run(std::string("check precision ") + plain);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_TRUE(contains(outcome.err, "[precision.compute]") &&
                contains(outcome.err, "--set precision.compute=fp8"))
        << outcome.err;
  }
  for (const char* wrong : {"", "run.toml --model run", "nowhere.toml", "--model nowhere"})
    EXPECT_EQ(run(std::string("check precision ") + wrong).code, 2) << wrong;
}

// Each of two layers has four weights; a history is 1,024 steps and the magnitude in force, in fp32.
TEST_F(PrecisionCommand, ExplainsHistoriesOfDelayedScaling) {
  const auto states_of = [&](const char* recipe, std::string& text) {
    const std::string set = std::string(" --set precision.recipe=") + recipe;
    text = run("explain run.toml" + set).out;
    const json parsed = parse_json<json>(run("explain run.toml --json" + set).out);
    std::map<std::string, int64_t> histories;
    int64_t others = 0;
    for (const json& value : parsed.at("persistent")) {
      if (value.at("role") != "state") continue;
      const std::string name = value.at("name");
      if (name.starts_with("history_")) {
        histories[name.substr(0, name.find('.'))] += value.at("bytes").get<int64_t>();
      } else {
        others += value.at("bytes").get<int64_t>();
      }
    }
    return std::pair(histories, others);
  };
  std::string delayed_text, block_text;
  const auto [delayed, others] = states_of("delayed", delayed_text);
  const auto [block, same] = states_of("block", block_text);
  const int64_t each = 8 * 1025 * 4;
  EXPECT_EQ(delayed, (std::map<std::string, int64_t>{
                         {"history_input", each}, {"history_weight", each}, {"history_gradient", each}}));
  EXPECT_TRUE(block.empty());
  EXPECT_EQ(others, same);
  EXPECT_TRUE(contains(delayed_text, "computed in bf16, matmuls in fp8 (delayed)")) << delayed_text;
  EXPECT_TRUE(
      contains(delayed_text, "histories of 1024 steps for 8 inputs, 8 weights and 8 gradients: 98.4 kB"))
      << delayed_text;
  EXPECT_TRUE(contains(block_text, "matmuls in fp8 (block)") && !contains(block_text, "histories"))
      << block_text;

  // Weights once after an update, before the micro-batches; inputs and gradients as they are read.
  const std::string program = run("explain run.toml --program --set precision.recipe=delayed").out;
  const size_t weight = program.find("greatest.history_weight."),
               forward = program.find("greatest.history_input."),
               backward = program.find("greatest.history_gradient."), after = program.find("follow_history");
  ASSERT_TRUE(weight < forward && forward < backward && backward < after && after != std::string::npos);
}

TEST_F(PrecisionCommand, BenchShowsEveryRecipe) {
  const Outcome outcome = run(
      "bench precision --json --set model.preset=llama3-5m --set model.override.vocab_size=512 "
      "--set model.override.num_hidden_layers=1 --set model.override.hidden_size=64 "
      "--set model.override.intermediate_size=64 --set 'precision.keep=[\"head\"]' "
      "--set training.micro_batch_size=1 --set training.global_batch_size=1 --set training.sequence_length=16");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json bench = parse_json<json>(outcome.out);
  for (const char* recipe : {"block", "tensor", "delayed", "row", "row_hp_wgrad", "mxfp8", "nvfp4"}) {
    const json& of_recipe = bench.at("precision").begin()->at("recipes").at(recipe);
    EXPECT_GT(of_recipe.at("quantize_of_triad").get<double>(), 0) << recipe;
    EXPECT_TRUE(of_recipe.at("product_of_plain").at("forward").is_number()) << recipe;
  }
}

// A layout changes no rounding, so the check needs no ranks.
TEST_F(PrecisionCommand, TakesTheConfigurationOfSeveralRanks) {
  const Outcome one = run("check precision run.toml --json"),
                two = run("check precision run.toml --json --set parallel.tensor=2");
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(two.out, one.out);
}

}  // namespace
}  // namespace strata::cli
