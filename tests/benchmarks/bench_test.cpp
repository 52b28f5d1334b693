// Runs the benchmarks on tiny models and checks that their figures are consistent; asserts nothing about
// speed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/json.h"
#include "fixtures/scratch_folder.h"

namespace strata::training {
namespace {

class BenchTest : public testing::Test {
 protected:
  // Runs `strata bench NAME --json` on a model of two layers. Returns the object printed for `name`.
  nlohmann::json bench(const std::string& name, const std::vector<std::string>& more = {}) {
    std::string command = "\"" STRATA_PROGRAM "\" bench " + name + " --json";
    std::vector<std::string> sets{"model.family='llama3'",
                                  "model.vocab_size=300",
                                  "model.hidden_size=32",
                                  "model.intermediate_size=48",
                                  "model.num_hidden_layers=2",
                                  "model.num_attention_heads=4",
                                  "model.num_key_value_heads=2",
                                  "model.max_position_embeddings=128",
                                  "training.sequence_length=16",
                                  "training.global_batch_size=8",
                                  "training.micro_batch_size=4",
                                  "training.steps=20",
                                  "precision.compute='fp32'",
                                  "memory.budget='2GB'",
                                  "run.folder='" + (scratch_ / "work").string() + "'"};
    sets.insert(sets.end(), more.begin(), more.end());
    for (const std::string& set : sets) command += " --set \"" + set + "\"";
    command += " 2>\"" + (scratch_ / "errors").string() + "\"";
    std::string text;
    FILE* const pipe = ::popen(command.c_str(), "r");
    char buffer[4096];
    for (size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
    status_ = WEXITSTATUS(::pclose(pipe));
    if (status_ != 0) return {};
    const auto json = parse_json<nlohmann::json>(text);
    EXPECT_EQ(json.size(), 1u);
    return json.at(name);
  }
  std::string errors() const { return read_file(scratch_ / "errors"); }

  ScratchFolder scratch_;
  int status_ = -1;
};

TEST_F(BenchTest, DecodeAddsUp) {
  const auto json = bench("decode");
  ASSERT_EQ(status_, 0) << errors();
  ASSERT_EQ(json["cases"].size(), 1u);
  const auto& one = json["cases"][0];
  // The weights of two layers, the head, and keys and values of 128 positions, in fp32.
  const double weights = 2 * (64 * 32 + 32 * 32 + 96 * 32 + 32 * 48) + 300 * 32, cache = 2 * 2 * 128 * 16;
  EXPECT_EQ(one["bytes_per_token"].get<double>(), 4 * (weights + cache));
  EXPECT_GT(one["best_token_seconds"].get<double>(), 0);
  EXPECT_LE(one["best_token_seconds"].get<double>(), one["token_seconds"].get<double>());
  EXPECT_NEAR(one["share"].get<double>(),
              one["bytes_per_token"].get<double>() / one["best_token_seconds"].get<double>() /
                  one["memory_bytes_per_s"].get<double>(),
              1e-9);
}

TEST_F(BenchTest, LoadAddsUp) {
  const auto json = bench("load");
  ASSERT_EQ(status_, 0) << errors();
  const double step = json["step_seconds"], wait = json["wait_seconds"], copy = json["copy_seconds"];
  EXPECT_GT(step, 0);
  EXPECT_GT(copy, 0);
  EXPECT_NEAR(json["share"].get<double>(), (wait + copy) / step, 1e-12);
  EXPECT_GT(json["share_with_fill"].get<double>(), json["share"].get<double>());
  EXPECT_TRUE(std::filesystem::is_empty(scratch_ / "work")) << "files were left";
}

TEST_F(BenchTest, EvalCountsEventsOfARun) {
  const auto json = bench("eval", {"eval.interval=5", "checkpoint.interval=8"});
  ASSERT_EQ(status_, 0) << errors();
  EXPECT_EQ(json["evaluation"]["times"], 4);
  EXPECT_EQ(json["samples"]["times"], 4);
  EXPECT_EQ(json["checkpoint"]["times"], 3) << "the last step is always saved";
  EXPECT_EQ(json["final model"]["times"], 1);
  double all = 0;
  for (const char* name : {"evaluation", "samples", "checkpoint", "final model"}) {
    EXPECT_GT(json[name]["once_seconds"].get<double>(), 0) << name;
    all += json[name]["once_seconds"].get<double>() * json[name]["times"].get<double>();
  }
  const double steps = json["steps"].get<double>() * json["step_seconds"].get<double>();
  EXPECT_NEAR(json["share"].get<double>(), all / (all + steps), 1e-9);
  // At least the embedding and its two moments, in fp32.
  EXPECT_GT(json["checkpoint_bytes"].get<double>(), 3 * 4 * 300 * 32);
  EXPECT_TRUE(std::filesystem::is_empty(scratch_ / "work"));
}

TEST_F(BenchTest, EvalSkipsDisabledEvents) {
  const auto json = bench("eval", {"eval.interval='never'", "eval.sample_tokens=0"});
  ASSERT_EQ(status_, 0) << errors();
  EXPECT_EQ(json["evaluation"]["times"], 1) << "the last step is evaluated";
  EXPECT_EQ(json["samples"]["once_seconds"], 0);
}

TEST_F(BenchTest, StepRunsTheProgramItself) {
  const auto json = bench("step");
  ASSERT_EQ(status_, 0) << errors();
  const auto& one = json.at("llama3 4x16 f32");
  double families = 0;
  for (const auto& [name, seconds] : one["family_seconds"].items()) families += seconds.get<double>();
  EXPECT_GT(families, 0);
  EXPECT_GT(one["instruction_seconds"].get<double>(), 0);
  EXPECT_GT(one["run_first_over_steady"].get<double>(), 0);
  EXPECT_GT(one["run_peak_resident_bytes"].get<int64_t>(), one["arena_bytes"].get<int64_t>());
  EXPECT_TRUE(std::filesystem::is_empty(scratch_ / "work"));
}

TEST_F(BenchTest, MonitorsAreAShareOfTheStep) {
  const auto json = bench("monitors");
  ASSERT_EQ(status_, 0) << errors();
  const auto& one = json.at("llama3 4x16 f32");
  EXPECT_GT(one["statistics_share"].get<double>(), 0);
  EXPECT_LT(one["share"].get<double>(), 1);
  EXPECT_NEAR(one["share"], one["statistics_share"].get<double>() + one["digest_share"].get<double>(), 1e-9);
  EXPECT_EQ(one["every"], 10);
  EXPECT_LE(one["difference"]["low"], one["difference"]["median"]);
  EXPECT_LE(one["difference"]["median"], one["difference"]["high"]);
  EXPECT_NEAR(one["difference"]["median"], one["difference_measuring"]["median"].get<double>() / 10, 1e-9);
}

// Each recipe against the type that is fast on the machine, whatever the settings have.
TEST_F(BenchTest, PrecisionComparesEveryRecipe) {
  const auto json = bench("precision", {"precision.keep=['head']"});
  ASSERT_EQ(status_, 0) << errors();
  ASSERT_EQ(json.size(), 1u);
  EXPECT_TRUE(json.begin().key().starts_with("llama3 4x16 ")) << json;
  const auto& recipes = json.begin().value()["recipes"];
  for (const char* name : {"block", "tensor", "row", "row_hp_wgrad", "mxfp8", "nvfp4"}) {
    ASSERT_TRUE(recipes.contains(name)) << name;
    const auto& one = recipes[name];
    EXPECT_GT(one["step_of_plain"].get<double>(), 0);
    EXPECT_GT(one["quantize_of_triad"].get<double>(), 0);
    EXPECT_GT(one["quantize_share"].get<double>(), 0);
    EXPECT_LT(one["quantize_share"].get<double>(), 1);
    EXPECT_GT(one["product_of_plain"]["forward"].get<double>(), 0);
    EXPECT_GT(one["product_of_plain"]["input_grad"].get<double>(), 0);
    // Which this recipe leaves in the type of activations.
    EXPECT_EQ(one["product_of_plain"]["weight_grad"].is_null(), std::string(name) == "row_hp_wgrad");
  }
}

TEST_F(BenchTest, RanksAddUp) {
  const auto json = bench("ranks");
  ASSERT_EQ(status_, 0) << errors();
  const auto& one = json["layouts"]["one rank"]["tokens_per_s"];
  ASSERT_EQ(one.size(), 5u);
  std::vector<std::string> names{
      "data parallel, local",  "ZeRO-3, local",      "tensor 2",
      "context 2, all-gather", "context 2, Ulysses", "pipeline 2, 8 micro-batches"};
#ifdef STRATA_MPIRUN
  names.emplace_back("ZeRO-3, MPI");
#endif
  for (const std::string& name : names) {
    const auto& layout = json["layouts"][name];
    ASSERT_EQ(layout["tokens_per_s"].size(), one.size()) << name;
    std::vector<double> shares;
    for (size_t i = 0; i < one.size(); ++i)
      shares.push_back(layout["tokens_per_s"][i].get<double>() / one[i].get<double>());
    std::sort(shares.begin(), shares.end());
    EXPECT_NEAR(layout["of_one_rank"].get<double>(), shares[2], 1e-9) << name;
  }
  EXPECT_EQ(json["start"]["ranks"], 64);
  for (const auto& seconds : json["start"]["seconds"]) EXPECT_GT(seconds.get<double>(), 0);
  EXPECT_TRUE(std::filesystem::is_empty(scratch_ / "work")) << "files were left";
}

TEST_F(BenchTest, SchedulesAreComparedWithTheirSimulation) {
  const auto json = bench("pipeline");
  ASSERT_EQ(status_, 0) << errors();
  for (const char* schedule : {"1f1b", "zb_h1", "zbv", "interleaved"}) {
    const auto& one = json[schedule];
    ASSERT_EQ(one["seconds"].size(), 7u) << schedule;
    for (const auto& seconds : one["seconds"]) EXPECT_GT(seconds.get<double>(), 0);
    EXPECT_GT(one["simulated_seconds"].get<double>(), 0);
    EXPECT_NEAR(one["expected_of_1f1b"].get<double>(),
                one["simulated_seconds"].get<double>() / json["1f1b"]["simulated_seconds"].get<double>(),
                1e-9);
  }
}

TEST_F(BenchTest, SavesAreComparedWithTheSameSteps) {
  const auto json = bench("saves");
  ASSERT_EQ(status_, 0) << errors();
  EXPECT_EQ(json["saves"], 20);
  EXPECT_GE(json["steps_per_save"].get<int64_t>(), 2);
  // Weights and two moments, in fp32.
  const int64_t numbers = 2 * (96 * 32 + 3 * 32 * 48 + 2 * 32) + 300 * 32 + 32;
  EXPECT_GT(json["checkpoint_bytes"].get<int64_t>(), 12 * numbers);
  EXPECT_GE(json["staging_bytes"].get<int64_t>(), 12 * numbers);
  EXPECT_NEAR(json["share"].get<double>(),
              json["beside_seconds"].get<double>() / json["waiting_seconds"].get<double>(), 1e-9);
  for (const char* kind : {"none", "waiting", "beside"})
    EXPECT_GT(json["all_seconds"][kind].get<double>(), 0) << kind;
  EXPECT_GT(json["beside_cpu_seconds"].get<double>(), 0);
}

TEST_F(BenchTest, EncodersNeedNoText) {
  for (const char* family : {"bert", "t5"}) {
    const std::vector<std::string> sets{std::string("model.family='") + family + "'",
                                        "model.num_key_value_heads=4"};
    const auto step = bench("step", sets);
    ASSERT_EQ(status_, 0) << errors();
    EXPECT_GT(step.at(std::string(family) + " 4x16 f32")["mfu_measured"].get<double>(), 0);
    bench("load", sets);
    ASSERT_EQ(status_, 0) << errors();
    const auto eval = bench("eval", sets);
    ASSERT_EQ(status_, 0) << errors();
    EXPECT_GT(eval["evaluation"]["once_seconds"].get<double>(), 0);
    EXPECT_EQ(eval["samples"]["once_seconds"], 0);
    bench("decode", sets);
    EXPECT_EQ(status_, 2);
    EXPECT_NE(errors().find(family), std::string::npos) << errors();
  }
}

TEST_F(BenchTest, RejectsUnsupportedSettings) {
  bench("load", {"model.num_key_value_heads=3"});
  EXPECT_EQ(status_, 2);
  bench("peak");
  EXPECT_EQ(status_, 2);
  EXPECT_NE(errors().find("--set"), std::string::npos) << errors();
}

}  // namespace
}  // namespace strata::training
