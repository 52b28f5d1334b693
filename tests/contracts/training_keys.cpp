// Contracts of [training] and [schedule].
#include <cmath>
#include <numbers>

#include "contracts/contract.h"
#include "contracts/lab.h"
#include "contracts/windows.h"

namespace strata::contracts {
namespace {

void sequence_length(const std::string&) {
  Lab lab;
  Windows windows(lab, {{"a", 6}});
  // A step trains on this number of tokens, and the next step begins after them.
  const Seen run =
      lab.run(windows.sets() + Sets{"data.train=" + lab.list({"a.bin"}), "training.sequence_length=32"});
  auto ids = windows.ids("a", 0);
  for (const int64_t second : {1, 3}) {
    ids = windows.ids("a", second - 1);
    const auto next = windows.ids("a", second);
    ids.insert(ids.end(), next.begin() + 1, next.end());
    EXPECT_NEAR(run.values("loss").at(static_cast<size_t>(second / 2)), windows.loss(ids), 1e-5);
  }
  EXPECT_EQ(run.values("tokens"), (std::vector<double>{32, 64}));
  EXPECT_TRUE(has(lab.refusal({"training.sequence_length=65"}), "64 positions"));
}

void global_batch_size(const std::string&) {
  Lab lab;
  Windows windows(lab, {{"a", 6}});
  const Seen run =
      lab.run(windows.sets() + Sets{"data.train=" + lab.list({"a.bin"}), "training.global_batch_size=3"});
  double first = 0;
  for (const int64_t window : {0, 1, 2}) first += windows.loss(windows.ids("a", window)) / 3;
  EXPECT_NEAR(run.values("loss").at(0), first, 1e-5);
  EXPECT_EQ(run.values("first_sample"), (std::vector<double>{0, 3}));
  EXPECT_EQ(run.values("tokens"), (std::vector<double>{48, 96}));
}

// The size of micro-batches changes the instructions of a step, not its results.
void micro_batch_size(const std::string&) {
  Lab lab;
  const Sets sets{"training.global_batch_size=4", "optimizer.lr=0.01"};
  const Seen whole = lab.run(sets + Sets{"training.micro_batch_size=4"});
  for (const int64_t size : {1, 2}) {
    const std::string set = "training.micro_batch_size=" + std::to_string(size);
    const Seen cut = lab.run(sets + Sets{set});
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(cut.values("loss")[i], whole.values("loss")[i], 1e-6);
    for (const auto& [name, tensor] : whole.weights(2))
      EXPECT_LT(distance(cut.weights(2).at(name).values, tensor.values), 1e-4) << name;
    EXPECT_EQ(lab.explain({"--schedule"}, sets + Sets{set}).at("microbatches"), 4 / size);
    EXPECT_LT(cut.event("start").at("arena_bytes"), whole.event("start").at("arena_bytes"));
  }
  EXPECT_TRUE(has(lab.refusal(sets + Sets{"training.micro_batch_size=3"}), "divide"));
}

void steps(const std::string&) {
  Lab lab;
  for (const int64_t wanted : {1, 3}) {
    const Seen run = lab.run({"training.steps=" + std::to_string(wanted)});
    EXPECT_EQ(std::ssize(run.steps), wanted);
    EXPECT_EQ(run.result.step, wanted);
    EXPECT_TRUE(run.result.end == training::RunEnd::kFinished &&
                std::filesystem::exists(run.folder / "final"));
  }
}

// The number of whole steps that cover the tokens.
void tokens(const std::string&) {
  Lab lab;
  const auto steps_of = [&](const std::string& wanted) {
    return std::ssize(lab.run_toml(lab.toml(), {"training.sequence_length=16", "training.global_batch_size=2",
                                                "training.tokens=" + wanted})
                          .steps);
  };
  EXPECT_EQ(steps_of("1"), 1);
  EXPECT_EQ(steps_of("64"), 2);  // 32 per step
  EXPECT_EQ(steps_of("65"), 3);
  EXPECT_TRUE(has(lab.refusal({"training.tokens=64"}), "both steps and tokens"));
}

// The batch by tokens trained on, each sample once; the programs of all sizes are there from the start.
void batch_ramp(const std::string&) {
  Lab lab;
  Windows windows(lab, {{"a", 12}});
  const Sets base = windows.sets() + Sets{"data.train=" + lab.list({"a.bin"}), "training.global_batch_size=4",
                                          "training.steps=3"};
  const Sets ramp{"training.batch_ramp=[[0, 1], [32, 4]]"};
  const Seen run = lab.run(base + ramp);
  EXPECT_EQ(run.values("first_sample"), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(run.values("tokens"), (std::vector<double>{16, 32, 96}));
  EXPECT_NEAR(run.values("loss").at(0), windows.loss(windows.ids("a", 0)), 1e-5);
  const json plan = lab.explain({}, base + ramp);
  ASSERT_EQ(plan.at("ramp").size(), 2u);
  EXPECT_EQ(plan.at("ramp")[0].at("steps"), 2);
  EXPECT_EQ(plan.at("ramp")[0].at("samples"), 1);
  EXPECT_EQ(plan.at("ramp")[1].at("first_step"), 3);
  EXPECT_FALSE(lab.explain({}, base).contains("ramp"));
  for (const auto& [value, message] : std::vector<std::pair<std::string, std::string>>{
           {"[[16, 1], [32, 4]]", "[[0, 1], …]"},
           {"[[0, 2], [16, 1], [32, 4]]", "found [16, 1] after [0, 2]"},
           {"[[0, 1], [32, 2]]", "expected 4 (training.global_batch_size)"},
           {"[[0, 1, 2]]", "a list of pairs"},
           {"\"noise\"", "or \"noise_scale\""}})
    EXPECT_TRUE(has(lab.refusal(base + Sets{"training.batch_ramp=" + value}), message)) << value;
  EXPECT_TRUE(
      has(lab.refusal(base + Sets{"training.batch_ramp=[[0, 1], [32, 4]]", "training.micro_batch_size=2"}),
          "found 1 sequences, which micro_batch_size = 2 does not divide"));
  EXPECT_TRUE(has(lab.refusal(base + Sets{"training.batch_ramp=noise_scale", "training.micro_batch_size=4"}),
                  "raise global_batch_size"));
}

// Until then a window is cut into equal sequences; samples and the tokens of a step stay.
void length_warmup(const std::string&) {
  Lab lab;
  Windows windows(lab, {{"a", 12}});
  const Sets base = windows.sets() + Sets{"data.train=" + lab.list({"a.bin"})};
  const Seen run = lab.run(base + Sets{"training.length_warmup=[[0, 8], [16, 16]]"});
  const std::vector<uint16_t> ids = windows.ids("a", 0);
  const double first = windows.loss({ids.begin(), ids.begin() + 9}),
               second = windows.loss({ids.begin() + 8, ids.end()});
  EXPECT_NEAR(run.values("loss").at(0), (first + second) / 2, 1e-5);
  EXPECT_EQ(run.values("tokens"), lab.run(base).values("tokens"));
  EXPECT_EQ(run.values("first_sample"), lab.run(base).values("first_sample"));
  EXPECT_EQ(lab.explain({}, base + Sets{"training.length_warmup=[[0, 8], [\"16\", 16]]"})
                .at("ramp")[0]
                .at("length"),
            8);
  for (const auto& [value, message] : std::vector<std::pair<std::string, std::string>>{
           {"[[0, 6], [32, 16]]", "does not divide sequence_length = 16"},
           {"[[0, 8]]", "expected 16 (training.sequence_length)"},
           {"[[8, 16]]", "[[0, 16], …]"}})
    EXPECT_TRUE(has(lab.refusal(base + Sets{"training.length_warmup=" + value}), message)) << value;
}

// Reports the norm before clipping; scales gradients down to the limit.
void clip_grad_norm(const std::string&) {
  Lab lab;
  const Sets one = kStill + Sets{"training.steps=1"};
  const Seen whole = lab.run(one);
  const double size = norm(whole.states(1), "m/");
  EXPECT_NEAR(whole.values("grad_norm").at(0), size, 1e-5 * size);
  for (const double limit : {size / 3, size * 3}) {
    const Seen clipped = lab.run(one + Sets{"training.clip_grad_norm=" + std::to_string(limit)});
    EXPECT_NEAR(clipped.values("grad_norm").at(0), size, 1e-5 * size);
    EXPECT_NEAR(norm(clipped.states(1), "m/"), std::min(limit, size), 1e-4 * size);
  }
}

// Limits the gradient of each row to a share of the row's weights.
void clip_rows(const std::string&) {
  Lab lab;
  const Sets one = kStill + Sets{"training.steps=1", "training.clip_grad_norm=0"};
  const Seen whole = lab.run(one);
  const double limit = 0.02;
  const Seen clipped = lab.run(one + Sets{"training.clip_rows=" + std::to_string(limit)});
  const auto gradients = whole.states(1), limited = clipped.states(1), weights = whole.weights(1);
  int64_t rows = 0, rows_limited = 0;
  for (const auto& [name, weight] : weights) {
    const Tensor &before = gradients.at("m/" + name), &after = limited.at("m/" + name);
    const bool is_hidden = weight.shape.rank() == 2 && name.find("layers.") != std::string::npos;
    const int64_t columns = is_hidden ? weight.shape[1] : weight.shape.elements();
    for (int64_t row = 0; row < weight.shape.elements() / columns; ++row) {
      const auto norm_of = [&](const Tensor& values) {
        double sum = 0;
        for (int64_t i = row * columns; i < (row + 1) * columns; ++i)
          sum += std::pow(values.values[static_cast<size_t>(i)], 2);
        return std::sqrt(sum);
      };
      const double most = is_hidden ? limit * std::max(norm_of(weight), 1e-3) : 1e9;
      const double expected = std::min(norm_of(before), most);
      EXPECT_NEAR(norm_of(after), expected, 1e-4 * expected) << name << " row " << row;
      ++rows;
      rows_limited += norm_of(before) > most ? 1 : 0;
    }
  }
  EXPECT_GT(rows_limited, 0);
  EXPECT_LT(rows_limited, rows);
}

// The learning rate of each curve at step s of N, with w steps of warmup and floor m, as documented.
struct Curve {
  double lr = 0.01;
  int warmup = 0, steps = 8;
  double floor = 0.2, decay_ratio = 0.5;
  std::string name = "cosine", decay = "linear";

  double operator()(int s) const {
    if (s <= warmup) return lr * s / warmup;
    const auto falling = [&](const std::string& shape, double p) {
      const double left = shape == "cosine" ? (1 + std::cos(std::numbers::pi * p)) / 2
                          : shape == "sqrt" ? 1 - std::sqrt(p)
                                            : 1 - p;
      return lr * (floor + (1 - floor) * left);
    };
    const auto share = [&](int from) {
      return std::min(1.0, static_cast<double>(s - from) / static_cast<double>(steps - from));
    };
    if (name == "constant") return lr;
    if (name == "inverse_sqrt") {
      const double time = warmup > 0 ? warmup : 10'000;
      return lr * std::max(floor, std::sqrt(time / (s - warmup + time)));
    }
    if (name != "wsd") return falling(name, share(warmup));
    const int begin = steps - static_cast<int>(std::lround(decay_ratio * steps));
    return s <= begin ? lr : falling(decay, share(begin));
  }
};

void expect_curve(Lab& lab, const Curve& curve, int run_steps) {
  const Seen run = lab.run(
      {"optimizer.lr=" + std::to_string(curve.lr), "schedule.name=\"" + curve.name + "\"",
       "schedule.warmup_steps=" + std::to_string(curve.warmup),
       "schedule.min_lr_ratio=" + std::to_string(curve.floor),
       "schedule.steps=" + std::to_string(curve.steps),
       "schedule.decay_ratio=" + std::to_string(curve.decay_ratio), "schedule.decay=\"" + curve.decay + "\"",
       "training.steps=" + std::to_string(run_steps), "checkpoint.interval=\"99 steps\""});
  const auto found = run.values("lr");
  ASSERT_EQ(std::ssize(found), run_steps);
  for (int s = 1; s <= run_steps; ++s)
    EXPECT_NEAR(found[static_cast<size_t>(s) - 1], curve(s), 1e-9) << curve.name << curve.decay << " " << s;
}

void curves(const std::string&) {
  Lab lab;
  for (const char* name : {"cosine", "linear", "constant", "inverse_sqrt", "wsd"}) {
    for (const int warmup : {0, 3}) expect_curve(lab, {.warmup = warmup, .name = name}, 8);
  }
}
void floors(const std::string&) {
  Lab lab;
  for (const char* name : {"cosine", "linear", "inverse_sqrt", "wsd"}) {
    for (const double floor : {0.0, 0.9}) expect_curve(lab, {.warmup = 1, .floor = floor, .name = name}, 8);
  }
}
void decays(const std::string&) {
  Lab lab;
  for (const char* shape : {"linear", "sqrt", "cosine"})
    for (const double ratio : {0.0, 0.25, 0.75, 1.0})
      expect_curve(lab, {.decay_ratio = ratio, .name = "wsd", .decay = shape}, 8);
}
// The curve ends after schedule.steps, before or after the run's end; "training" is the length of the run.
void horizon(const std::string&) {
  Lab lab;
  expect_curve(lab, {.warmup = 1, .steps = 4}, 6);
  expect_curve(lab, {.warmup = 1, .steps = 12}, 6);
  const Curve whole{.lr = 0.01, .warmup = 2, .steps = 5, .floor = 0.1};
  const auto found =
      lab.run({"optimizer.lr=0.01", "training.steps=5", "schedule.steps=\"training\""}).values("lr");
  for (int s = 1; s <= 5; ++s) EXPECT_NEAR(found.at(static_cast<size_t>(s) - 1), whole(s), 1e-9);
}

}  // namespace

Contracts training_keys() {
  return {{"training.sequence_length", sequence_length},
          {"training.micro_batch_size", micro_batch_size},
          {"training.global_batch_size", global_batch_size},
          {"training.steps", steps},
          {"training.tokens", tokens},
          {"training.clip_grad_norm", clip_grad_norm},
          {"training.clip_rows", clip_rows},
          {"training.batch_ramp", batch_ramp},
          {"training.length_warmup", length_warmup},
          {"schedule.name", curves},
          {"schedule.warmup_steps", curves},
          {"schedule.min_lr_ratio", floors},
          {"schedule.steps", horizon},
          {"schedule.decay_ratio", decays},
          {"schedule.decay", decays}};
}

}  // namespace strata::contracts
