// Data with tokens that have no target, and rows with padding: the metrics of such steps.
#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "fixtures/tiny_run.h"
#include "observe/metrics.h"

namespace strata::training {
namespace {

// Documents of these lengths; each ends with id 0.
std::vector<uint16_t> documents(const std::vector<int>& lengths) {
  std::vector<uint16_t> ids;
  for (const int length : lengths) {
    for (int i = 1; i < length; ++i)
      ids.push_back(static_cast<uint16_t>(1 + (ids.size() * 7) % (kTinyVocab - 1)));
    ids.push_back(0);
  }
  return ids;
}

std::string metrics_text(const TinyRun& tiny, const std::string& name = "run") {
  return read_file(tiny.folder(name) / "metrics.jsonl");
}

// Metrics without a value are absent: never null, and never NaN or infinite.
void expect_numbers(const std::string& metrics) {
  for (const char* bad : {"null", "NaN", "nan", "inf"}) EXPECT_EQ(metrics.find(bad), metrics.npos) << metrics;
}

// One pass over some.bin in order, two sequences per step in micro-batches of one.
Sets two_per_step(const TinyRun& tiny) {
  return {"data.train=[\"" + tiny.path("some.bin").string() + "\"]", "data.shuffle=false", "data.epochs=1",
          "training.global_batch_size=2", "training.micro_batch_size=1"};
}

TEST(NoTargets, DataWithoutTargetsAreRefused) {
  const TinyRun tiny;
  put_tokens(tiny.path("ends.bin"), std::vector<uint16_t>(300, 0));
  for (const char* pack : {"documents", "best_fit"}) {
    for (const bool dry : {false, true}) {
      RunOptions options{.config = tiny.config({"data.train=[\"" + tiny.path("ends.bin").string() + "\"]",
                                                std::string("data.pack=\"") + pack + "\""})};
      options.dry_run = dry;
      try {
        tiny.train_with(options);
        ADD_FAILURE() << pack << " is not refused";
      } catch (const Error& error) {
        EXPECT_TRUE(error.kind() == ErrorKind::kData || error.kind() == ErrorKind::kConfig) << error.what();
        EXPECT_NE(std::string(error.what()).find("[data]"), std::string::npos) << error.what();
      }
    }
  }
  // In a plain stream every token follows another.
  EXPECT_EQ(
      tiny.train({"data.train=[\"" + tiny.path("ends.bin").string() + "\"]", "data.pack=\"stream\""}).end,
      RunEnd::kFinished);
}

// Every second batch of two rows of 16 contains only end-of-text tokens.
TEST(NoTargets, AStepWithoutTargetsHasNoLoss) {
  const TinyRun tiny;
  std::vector<int> lengths;
  for (int batch = 0; batch < 4; ++batch) {
    if (batch % 2 == 0) {
      lengths.insert(lengths.end(), {16, 16});
    } else {
      lengths.insert(lengths.end(), 32, 1);
    }
  }
  lengths.push_back(1);
  put_tokens(tiny.path("some.bin"), documents(lengths));
  const Sets sets = two_per_step(tiny) + Sets{"training.steps=4", "checkpoint.interval=\"1 steps\"",
                                              "checkpoint.keep_last=9", "log.tensorboard=true"};
  const TrainResult result = tiny.train(sets);
  EXPECT_TRUE(std::isnan(result.loss)) << "the last step had no target";
  expect_numbers(metrics_text(tiny));
  const auto table = observe::read_metrics(tiny.folder() / "metrics.jsonl");
  ASSERT_EQ(table.steps().size(), 4U);
  EXPECT_NE(metrics_text(tiny).find("\"skipped\":true"), std::string::npos);
  for (size_t step = 0; step < 4; ++step) {
    EXPECT_EQ(std::isnan(table.column("loss")[step]), step % 2 == 1) << step + 1;
    EXPECT_TRUE(std::isfinite(table.column("grad_norm")[step])) << step + 1;
    EXPECT_EQ(table.column("tokens")[step], 32 * static_cast<double>(step + 1));
  }
  // A checkpoint of such a step is healthy.
  for (const auto& listed : checkpoint::list_checkpoints(tiny.folder() / "checkpoints"))
    EXPECT_TRUE(checkpoint::read_manifest(listed.path).health.good()) << listed.path;
  EXPECT_FALSE(checkpoint::read_manifest(tiny.folder() / "checkpoints/step-00000004").health.loss);
  // The run resumes from it.
  tiny.train(sets, "cut", 2);
  tiny.train(sets, "cut");
  expect_same_bits(bits_of(tiny.folder("cut"), 4), bits_of(tiny.folder(), 4));
}

TEST(NoTargets, OnSeveralRanks) {
  const TinyRun tiny;
  std::vector<int> lengths{16, 16};
  lengths.insert(lengths.end(), 33, 1);
  put_tokens(tiny.path("some.bin"), documents(lengths));
  const Sets sets = two_per_step(tiny) + Sets{"training.steps=2"};
  tiny.train_ranks(tiny.config(sets), 2);
  expect_numbers(metrics_text(tiny));
  EXPECT_EQ(values_of(tiny.folder(), "loss").size(), 1U);
}

// Models with experts or with layers that predict further tokens have additional metrics.
TEST(NoTargets, RoutersAndFurtherTokensHaveNoMetricsThen) {
  const TinyRun tiny;
  std::vector<int> lengths{16, 16};
  lengths.insert(lengths.end(), 32, 1);
  lengths.insert(lengths.end(), 16, 2);  // one target each, and no further token
  lengths.push_back(1);
  put_tokens(tiny.path("some.bin"), documents(lengths));
  const Sets sets = two_per_step(tiny) + Sets{"training.steps=3",
                                              "model.family=\"deepseek3\"",
                                              "model.num_key_value_heads=4",
                                              "model.override.q_lora_rank=24",
                                              "model.override.kv_lora_rank=16",
                                              "model.override.qk_nope_head_dim=16",
                                              "model.override.qk_rope_head_dim=8",
                                              "model.override.v_head_dim=16",
                                              "model.override.n_routed_experts=8",
                                              "model.override.num_experts_per_tok=2",
                                              "model.override.moe_intermediate_size=48",
                                              "model.override.first_k_dense_replace=1",
                                              "model.override.n_shared_experts=1",
                                              "model.override.n_group=2",
                                              "model.override.topk_group=1",
                                              "model.override.num_nextn_predict_layers=1"};
  tiny.train(sets);
  expect_numbers(metrics_text(tiny));
  const auto table = observe::read_metrics(tiny.folder() / "metrics.jsonl");
  const auto has = [&](const char* name) {
    std::string steps;
    for (const double value : table.column(name)) steps += std::isnan(value) ? '-' : 'x';
    return steps;
  };
  EXPECT_EQ(has("loss"), "x-x");
  EXPECT_EQ(has("expert_max_vio"), "x-x");
  EXPECT_EQ(has("balance_loss"), "x-x");
  EXPECT_EQ(has("mtp_loss"), "x--") << "in documents of two tokens only the second is predicted";
}

// Packed rows have padding: training.tokens and the metric "tokens" count only trained tokens.
TEST(NoTargets, PaddingIsNotCounted) {
  const TinyRun tiny;
  put_tokens(tiny.path("nine.bin"), documents(std::vector<int>(200, 9)));  // one in each row of 16
  const Sets sets{"data.train=[\"" + tiny.path("nine.bin").string() + "\"]", "data.pack=\"best_fit\"",
                  "training.steps=1000000", "training.global_batch_size=8", "schedule.warmup_steps=1"};
  Sets steps = sets;
  steps[2] = "training.steps=5";
  tiny.train(steps, "steps");
  EXPECT_EQ(values_of(tiny.folder("steps"), "tokens"), (std::vector<double>{72, 144, 216, 288, 360}));
  std::string toml = tiny.toml("tokens");
  const std::string by_steps = "\nsteps = 6\n";
  toml.replace(toml.find(by_steps), by_steps.size(), "\ntokens = 360\n");
  Sets tokens = sets;
  tokens.erase(tokens.begin() + 2);
  const auto config = config::parse_run_config(toml, "RUN.toml", tokens);
  EXPECT_EQ(tiny.train_with(RunOptions{.config = config}).step, 5);
  EXPECT_EQ(values_of(tiny.folder("tokens"), "tokens"), values_of(tiny.folder("steps"), "tokens"));
  // The learning rates are equal.
  EXPECT_EQ(metrics_of(tiny.folder("tokens")).lr, metrics_of(tiny.folder("steps")).lr);
  // The last batch of the data is half full.
  Sets once = sets;
  once[1] = "data.pack=\"documents\"";
  once[3] = "training.global_batch_size=32";
  once.push_back("data.epochs=1");
  tiny.train(once, "once");
  EXPECT_EQ(values_of(tiny.folder("once"), "tokens"), (std::vector<double>{512, 1024, 1536, 1792}))
      << "112 windows of 16 tokens";
}

}  // namespace
}  // namespace strata::training
