// Runs in fp16: close to fp32, with a loss scale that adapts, on one rank or several, however often they are
// killed.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "contracts/lab.h"
#include "train/replay.h"
#include "train/run_store.h"

namespace strata::training {
namespace {

using contracts::distance;
using contracts::kStill;
using contracts::Lab;
using contracts::Seen;
using Values = std::vector<double>;

const Sets kFp16{"precision.compute=\"fp16\""};

Sets scaled_by(int scale) {
  return kFp16 + Sets{"precision.loss_scale=" + std::to_string(scale)};
}

// The scale of each step, from whether the steps before it overflowed. Too few for growth.
void expect_rule(const Path& run) {
  double scale = 65536;
  int patience = 2, overflows = 0, steps = 0;
  std::istringstream lines(read_file(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto json = parse_json<nlohmann::json>(line);
    if (!json.contains("step")) {
      EXPECT_NE(json.at("event"), "intervention");
      continue;
    }
    ++steps;
    EXPECT_EQ(json.at("loss_scale"), scale) << "step " << steps;
    EXPECT_EQ(json.contains("overflowed"), json.contains("skipped"));
    if (!json.contains("overflowed")) continue;
    ++overflows;
    if (--patience <= 0) scale /= 2;
  }
  EXPECT_GE(overflows, 2);
  EXPECT_LT(overflows, steps) << "no step made an update";
}

TEST(Fp16, TrainsAsFp32) {
  for (const std::string& model : {std::string(), small_experts(4)}) {
    Lab lab;
    const std::string toml = lab.toml(model) +
                             "[training]\nsequence_length = 16\nglobal_batch_size = 8\n"
                             "micro_batch_size = 4\nsteps = 8\n";
    const Seen fp32 = lab.run_toml(toml), fp16 = lab.run_toml(toml, scaled_by(1024));
    const Values expected = fp32.values("loss"), found = fp16.values("loss");
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_LT(expected.back(), expected.front() - 0.1) << "nothing was learned";
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 5e-3) << "step " << i + 1;
    EXPECT_NE(found, expected);
    EXPECT_EQ(fp16.values("loss_scale"), Values(8, 1024));
    EXPECT_EQ(fp32.values("loss_scale"), Values());
    EXPECT_NEAR(fp16.values("grad_norm").front(), fp32.values("grad_norm").front(),
                5e-3 * fp32.values("grad_norm").front());
  }
}

// The gradient of the first step, as AdamW's first moment without decay.
contracts::Tensors gradients(Lab& lab, const std::string& toml, const Sets& sets) {
  return lab.run_toml(toml, Sets{"training.steps=1"} + kStill + sets).states(1);
}

// Losses of routers, large enough that a wrong scale would show, and further tokens: each is scaled alike.
TEST(Fp16, ScalesEveryLossAlike) {
  Lab lab;
  const std::string sizes =
      "[training]\nsequence_length = 16\nglobal_batch_size = 8\nmicro_batch_size = 4\nsteps = 1\n";
  for (const auto& [what, toml] :
       {std::pair<std::string, std::string>{"dense", lab.toml() + sizes},
        {"experts", lab.toml(small_experts(4)) + "[moe]\naux_coef = 0.5\nz_coef = 0.05\n" + sizes}}) {
    const contracts::Tensors expected = gradients(lab, toml, {});
    for (const int scale : {1, 4096}) {
      for (const auto& [name, tensor] : gradients(lab, toml, scaled_by(scale))) {
        if (!name.ends_with(".m")) continue;
        EXPECT_LT(distance(tensor.values, expected.at(name).values), 0.02)
            << what << ", " << name << ", scale " << scale;
      }
    }
  }
}

// The first scale is too large for so small a model.
TEST(Fp16, SkipsStepsThatOverflowWithoutIntervention) {
  Lab lab;
  const Seen run = lab.run(kFp16 + Sets{"training.steps=8"});
  expect_rule(run.folder);
  for (const auto& line : run.steps) {
    const auto step = line.at("step").get<int64_t>();
    if (step == 1) continue;
    EXPECT_EQ(contracts::same(run.weights(step), run.weights(step - 1)), line.contains("overflowed")) << step;
  }
}

// The scale, the good steps and the patience are in the checkpoint, and the same on all ranks, whose replicas are
// compared after every step.
TEST(Fp16, ResumesWithTheSameBits) {
  const TinyRun tiny;
  const auto train = [&](const std::string& name, int ranks, int64_t stop_at) {
    tiny.train_ranks(
        tiny.config(kFp16 + Sets{"parallel.shard=-1", "checkpoint.interval=\"1 steps\"", "training.steps=8"},
                    name),
        ranks, stop_at);
  };
  for (const int ranks : {1, 2}) {
    const std::string whole = "whole" + std::to_string(ranks);
    train(whole, ranks, -1);
    expect_rule(tiny.folder(whole));
    for (const int64_t stop : {2, 3}) {
      const std::string cut = "cut" + std::to_string(ranks) + std::to_string(stop);
      train(cut, ranks, stop);
      train(cut, ranks, -1);
      expect_same_bits(bits_of(tiny.folder(whole), 8), bits_of(tiny.folder(cut), 8), cut);
    }
  }
}

TEST(Fp16, RejectsStatesThatNoRunHas) {
  const TinyRun tiny;
  tiny.train(kFp16 + Sets{"training.steps=2"});
  const std::string state = bits_of(tiny.folder(), 2).state;
  const auto with = [&](const char* name, const nlohmann::json& value) {
    auto json = parse_json<nlohmann::json>(state);
    json.at("guard").at("loss_scale").at(name) = value;
    return training_state_from_json(dump_json(json), "state.json");
  };
  EXPECT_EQ(with("scale", 64).guard.loss_scale.scale, 64);
  EXPECT_EQ(with("patience", -30).guard.loss_scale.patience, -30);
  for (const double scale : {0.0, 0.5, 3.0, -4.0, 1e39})
    EXPECT_THROW(with("scale", scale), DataError) << scale;
  for (const int steps : {-1, 1000}) EXPECT_THROW(with("good_steps", steps), DataError) << steps;
  EXPECT_THROW(with("patience", 3), DataError);
  EXPECT_THROW(with("adaptive", "yes"), DataError);
}

TEST(Fp16, AgreesInMicroBatchesAndStages) {
  const TinyRun tiny;
  const auto losses = [&](const std::string& name, int ranks, const Sets& sets) {
    tiny.train_ranks(tiny.config(scaled_by(1024) + sets, name), ranks);
    return values_of(tiny.folder(name), "loss");
  };
  const Values one = losses("one", 1, {"training.micro_batch_size=8"});
  const auto expect_near = [&](const std::string& name, const Values& found) {
    ASSERT_EQ(found.size(), one.size()) << name;
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(found[i], one[i], 2e-3) << name << ", step " << i + 1;
  };
  expect_near("four", losses("four", 1, {"training.micro_batch_size=2"}));
  expect_near("split",
              losses("split", 2,
                     {"parallel.pipeline=2", "parallel.schedule=\"zb_h1\"", "training.micro_batch_size=2"}));
}

// Weights that are too large for fp16 overflow with any scale: the run ends when it cannot become smaller, and
// names what overflowed.
TEST(Fp16, EndsWhereTheLeastScaleOverflows) {
  Lab lab;
  std::string diverged;
  const Seen run = lab.run_to_end(kFp16 + contracts::kFlat +
                                      Sets{"training.steps=40", "optimizer.lr=100",
                                           "training.clip_grad_norm=0", "optimizer.weight_decay=0"},
                                  diverged);
  const Values scales = run.values("loss_scale");
  ASSERT_FALSE(scales.empty());
  EXPECT_EQ(scales.back(), 1);
  EXPECT_LT(scales.size(), 40u);
  for (const char* part : {"a loss scale of 1", "the first value that is not finite is ", "(F0: L0 ",
                           "precision.compute", "strata replay", "--step"})
    EXPECT_TRUE(contracts::has(diverged, part)) << part << "\n" << diverged;
  const Replay replay =
      replay_on_threads({.run = run.folder, .step = static_cast<int64_t>(scales.size())}, 1);
  EXPECT_TRUE(replay.same);
  ASSERT_TRUE(replay.first_nonfinite);
  EXPECT_TRUE(contracts::has(diverged, replay.first_nonfinite->tensor)) << replay.first_nonfinite->tensor;
}

// Statistics of gradients are those without the scale.
TEST(Fp16, ReportsGradientsWithoutTheScale) {
  Lab lab;
  const auto folder_of = [&](const Sets& sets) {
    return lab.run(Sets{"training.steps=1", "training.global_batch_size=8", "log.layers=\"1 steps\""} + sets)
        .folder;
  };
  const auto rows = [](const Path& folder) {
    std::map<std::string, double> sizes;
    std::istringstream lines(read_file(folder / "layers.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto json = parse_json<nlohmann::json>(line);
      for (const auto& row : json.at("layers"))
        if (row.contains("grad_rms") && row.at("grad_rms").is_number())
          sizes[row.at("tensor")] = row.at("grad_rms");
    }
    return sizes;
  };
  const auto expected = rows(folder_of({})), found = rows(folder_of(scaled_by(1024)));
  ASSERT_EQ(found.size(), expected.size());
  ASSERT_FALSE(found.empty());
  for (const auto& [tensor, size] : expected) EXPECT_NEAR(found.at(tensor), size, 0.02 * size) << tensor;
}

}  // namespace
}  // namespace strata::training
