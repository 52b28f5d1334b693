#include "plan/step_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "plan/group_network.h"
#include "plan/memory_model.h"

namespace strata::planning {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

ModelShape gpt_tied(int64_t layers, int64_t hidden, int64_t heads) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = hidden / heads,
          .ffn = 4 * hidden,
          .vocab = 51200,
          .gated = false,
          .tied = true};
}
const ModelShape kShape70b = {
    .layers = 80, .hidden = 8192, .heads = 64, .kv_heads = 8, .head_dim = 128, .ffn = 28672, .vocab = 128256};

const Profiles& profiles() {
  static const Profiles all = builtin_profiles();
  return all;
}
ClusterSpec cluster(const char* name) {
  return find_cluster(builtin_catalogue(), name);
}
double seconds(const TrainingJob& job, const ClusterSpec& on, const char* stack = "nemo") {
  return step_time(job, profiles().stack(stack), profiles(), on).total();
}
TrainingJob job_70b() {
  return {.shape = kShape70b,
          .layout = {.tensor = 4,
                     .pipeline = 4,
                     .virtual_stages = 5,
                     .data = 4,
                     .zero_stage = 1,
                     .shards = 4,
                     .micro_batches = 32},
          .sequence = 8192};
}

TEST(StackProfiles, BytesOfAParameter) {
  const auto bytes = [](const char* name) {
    const StackProfile& stack = profiles().stack(name);
    return stack.weight_bytes + stack.gradient_bytes + stack.optimizer_bytes;
  };
  EXPECT_EQ(bytes("megatron-lm"), 18);
  EXPECT_EQ(bytes("nanotron"), 20);
  EXPECT_EQ(bytes("primus"), 14);
  EXPECT_EQ(bytes("llmq"), 8);
  EXPECT_EQ(bytes("torchtitan"), 16);
  EXPECT_EQ(bytes("strata"), 18);
  EXPECT_THROW(profiles().stack("nemmo"), ConfigError);
  for (const StackProfile& stack : profiles().stacks) EXPECT_FALSE(stack.source.empty()) << stack.name;
}

TEST(StackProfiles, FilesAreCheckedAndRoundTrip) {
  const auto message = [](const char* text) {
    try {
      parse_profiles(text, "");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message("[stack.a]\nweight_byte = 2\n").find("stacks.toml:2] weight_byte"), std::string::npos);
  EXPECT_NE(message("[stack.a]\nattention = \"fast\"\n").find("expected one of scores"), std::string::npos);
  EXPECT_NE(message("[stack.a]\nreduce_bytes = -1\n").find("a number from 0"), std::string::npos);
  EXPECT_NE(message("[stack.a]\nlike = \"b\"\n").find("expected one of a"), std::string::npos);
  const Profiles& before = profiles();
  const Profiles after =
      parse_profiles("[stack.nemo]\nsource = \"s\"\n[family.hopper]\nchips = []\n", fitted_file(before));
  EXPECT_NEAR(after.stack("nemo").efficiency.value, before.stack("nemo").efficiency.value, 1e-4);
  EXPECT_EQ(after.stack("nemo").efficiency.rows, before.stack("nemo").efficiency.rows);
  EXPECT_EQ(after.fit_rows, before.fit_rows);
}

// arXiv 2205.05198, table 2, for GPT-3 175B, 8 tensor ranks, one sequence of 2048.
TEST(MemoryModel, ActivationsOfALayer) {
  TrainingJob job{.shape = gpt_tied(96, 12288, 96),
                  .layout = {.tensor = 8, .sequence_parallel = false},
                  .sequence = 2048};
  const StackProfile& stack = profiles().stack("megatron-lm");
  EXPECT_NEAR(layer_activation_bytes(job, stack) / 1e6, 579, 1);
  job.layout.recompute = Recompute::kFull;
  EXPECT_NEAR(layer_activation_bytes(job, stack) / 1e6, 50, 1);
  job.layout.sequence_parallel = true;
  job.layout.recompute = Recompute::kNone;
  EXPECT_NEAR(layer_activation_bytes(job, stack) / 1e6, 359, 1);
  job.layout.recompute = Recompute::kSelective;
  EXPECT_NEAR(layer_activation_bytes(job, stack) / 1e6, 107, 1);
  // Llama-style layers with fused attention: 34.0 bytes for 8B, 33.5 for 70B (plus the softmax, 4 a/h).
  TrainingJob llama{.shape = kShape70b, .layout = {}, .sequence = 8192};
  const double scale = 8192.0 * 8192;
  EXPECT_NEAR(layer_activation_bytes(llama, profiles().stack("nemo")) / scale, 33.5 + 4 * 64.0 / 8192, 0.05);
}

struct CalculonCase {
  const char* name;
  ModelShape shape;
  int64_t micro_batch, pipeline, virtual_stages;
  double parameters, activations, selective;  // GiB
  double sp, selective_only, both, full;      // per cent of the activations without
};

// Calculon's validation set (reference §2): memory within 5 %.
TEST(MemoryModel, CalculonsTable) {
  const CalculonCase cases[] = {
      {"22B", gpt_tied(48, 6144, 64), 4, 1, 1, 45.6, 59.3, 9.6, 67, 49, 16, 7.6},
      {"175B", gpt_tied(96, 12288, 96), 1, 8, 3, 45.6, 66.8, 12.4, 62, 57, 18, 8.7},
      {"530B", gpt_tied(105, 20480, 128), 1, 35, 3, 31.6, 114.0, 23.1, 58, 62, 20, 9.4},
      {"1T", gpt_tied(128, 25600, 160), 1, 64, 1, 33.0, 131.3, 26.6, 58, 62, 20, 9.4},
  };
  const ChipSpec chip = cluster("a100-80").chip;
  for (const CalculonCase& one : cases) {
    const auto use = [&](bool sequence_parallel, Recompute recompute) {
      const TrainingJob job{.shape = one.shape,
                            .layout = {.tensor = 8,
                                       .pipeline = one.pipeline,
                                       .virtual_stages = one.virtual_stages,
                                       .micro_batch = one.micro_batch,
                                       .micro_batches = 1024,
                                       .recompute = recompute,
                                       .sequence_parallel = sequence_parallel},
                            .sequence = 2048};
      return memory_use(job, profiles().stack("megatron-lm"), profiles(), chip);
    };
    const MemoryUse plain = use(false, Recompute::kNone);
    const auto expect = [&](const char* what, double found, double expected) {
      EXPECT_NEAR(found / expected, 1, 0.05) << one.name << " " << what << " " << found;
    };
    // The set leaves out the embedding.
    const Layout layout{.tensor = 8, .pipeline = one.pipeline};
    const double layers = static_cast<double>(one.shape.layers) / static_cast<double>(one.pipeline);
    const double held = stage_parameters(one.shape, layout, layers, 0).dense;
    const double embedding = stage_parameters(one.shape, layout, 0, 1).dense;
    expect("parameters", 18 * held / kGiB, one.parameters);
    EXPECT_NEAR((plain.weights + plain.gradients + plain.optimizer) / (18 * (held + embedding)), 1, 1e-9);
    expect("activations", plain.activations / kGiB, one.activations);
    expect("SP and selective", use(true, Recompute::kSelective).activations / kGiB, one.selective);
    const auto share = [&](const MemoryUse& other) { return 100 * other.activations / plain.activations; };
    expect("SP", share(use(true, Recompute::kNone)), one.sp);
    expect("selective", share(use(false, Recompute::kSelective)), one.selective_only);
    expect("both", share(use(true, Recompute::kSelective)), one.both);
    expect("full", share(use(false, Recompute::kFull)), one.full);
  }
}

TEST(MemoryModel, ShardingAndRecomputationSaveMemory) {
  TrainingJob job = job_70b();
  const ClusterSpec on = cluster("h100-sxm");
  const auto total = [&] { return memory_use(job, profiles().stack("nemo"), profiles(), on.chip).total(); };
  double before = total();
  for (const int64_t shards : {8, 32}) {
    job.layout.data = job.layout.shards = shards;
    EXPECT_LT(total(), before);
    before = total();
  }
  for (const int stage : {2, 3}) {
    job.layout.zero_stage = stage;
    EXPECT_LT(total(), before) << stage;
    before = total();
  }
  for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
    job.layout.recompute = recompute;
    EXPECT_LE(total(), before);
    before = total();
  }
  job.layout.tensor = 8;
  EXPECT_LT(total(), before);
}

// Guide 3 with the bytes that its formula lacks: at 1236 tokens a GPU in each gather round, three gathers of
// 2 bytes over 8 NICs of 50 GB/s take as long as the computation at half of 989 TFLOP/s.
TEST(GroupNetwork, FsdpCrossover) {
  const GroupNetwork network(cluster("h100-sxm"));
  const double parameters = 70e9;
  const double gathers = 3 * network.gather_seconds({.ranks = 65536, .stride = 1}, 2 * parameters);
  const double used = network.outer_rate() / 50e9;
  const double tokens = gathers * used * 0.5 * 989e12 / (6 * parameters);
  EXPECT_NEAR(tokens, 1236, 5);
  EXPECT_EQ(network.gather_seconds({.ranks = 1, .stride = 8}, 1e9), 0);
  // Within NVLink: (n-1)/n of the buffer.
  EXPECT_NEAR(network.gather_seconds({.ranks = 8, .stride = 1}, 8e9), 7e9 / network.inner_rate(), 1e-9);
  // Latency grows with the ranks of a ring, and with the logarithm of the hosts in a tree.
  EXPECT_GT(network.ring_latency({.ranks = 512, .stride = 1}),
            network.ring_latency({.ranks = 64, .stride = 1}));
  EXPECT_GT(network.ring_latency({.ranks = 512, .stride = 1}),
            network.tree_latency({.ranks = 512, .stride = 1}));
}

TEST(StepModel, RespondsToTheClusterInTheRightDirection) {
  const TrainingJob job = job_70b();
  ClusterSpec on = cluster("h100-sxm");
  const double before = seconds(job, on);
  for (LinkLevel& level : on.links) level.bandwidth.value *= 2;
  const double faster_links = seconds(job, on);
  EXPECT_LT(faster_links, before);
  on.chip.memory_bandwidth.value *= 2;
  const double faster_memory = seconds(job, on);
  EXPECT_LT(faster_memory, faster_links);
  for (Figure& peak : on.chip.peak) peak.value *= 2;
  const double faster_chip = seconds(job, on);
  EXPECT_LT(faster_chip, faster_memory);
  EXPECT_GT(faster_chip, before / 2) << "latency and fixed costs remain";
}

TEST(StepModel, MoreReplicasOfALayoutAreNeverFasterForADevice) {
  TrainingJob job = job_70b();
  double before = 0;
  for (const int64_t replicas : {1, 2, 4, 16, 64, 256}) {
    job.layout.data = job.layout.shards = replicas;
    job.layout.zero_stage = replicas > 1 ? 1 : 0;
    const double now = step_time(job, profiles().stack("nemo"), profiles(), cluster("h100-sxm")).data;
    EXPECT_GE(now, before) << replicas;
    before = now;
  }
}

TEST(StepModel, PartsFollowTheLayout) {
  TrainingJob job = job_70b();
  const ClusterSpec on = cluster("h100-sxm");
  const auto parts = [&] { return step_time(job, profiles().stack("nemo"), profiles(), on); };
  const StepTime interleaved = parts();
  job.layout.virtual_stages = 1;
  EXPECT_NEAR(parts().bubble / interleaved.bubble, 5, 1e-6);
  EXPECT_EQ(interleaved.recompute, 0);
  EXPECT_EQ(interleaved.expert, 0);
  job.layout.recompute = Recompute::kFull;
  const StepTime full = parts();
  // The forward pass again: a third of the matmuls, and more of attention's share.
  EXPECT_NEAR(full.recompute / (full.matmuls / 3 + full.attention / 3.5 + full.elementwise / 3), 1, 1e-6);
  EXPECT_GT(full.tensor, interleaved.tensor);
  job.precision = Precision::kFp8;
  EXPECT_LT(parts().matmuls, 0.7 * full.matmuls);
  EXPECT_EQ(parts().attention, full.attention) << "attention stays in 16 bits";
  EXPECT_THROW(step_time(job, profiles().stack("nemo"), profiles(), cluster("a100-80")), ConfigError);
}

// nanotron, 3.57B, sequences of 4096: 280 TFLOP/s with 8 tensor ranks, 158 with 16, 93 with 32.
TEST(StepModel, TensorRanksBeyondTheHostAreSlow) {
  const ModelShape shape = {.layers = 28,
                            .hidden = 3072,
                            .heads = 32,
                            .kv_heads = 32,
                            .head_dim = 96,
                            .ffn = 8192,
                            .vocab = 131072};
  const auto rate = [&](int64_t tensor, int64_t micro_batch) {
    const TrainingJob job{
        .shape = shape, .layout = {.tensor = tensor, .micro_batch = micro_batch}, .sequence = 4096};
    return job.batch_tokens() / static_cast<double>(tensor) / seconds(job, cluster("h100-sxm"), "nanotron");
  };
  const double inside = rate(8, 18);
  EXPECT_NEAR(rate(16, 40) / inside, 158.0 / 280, 0.15);
  EXPECT_NEAR(rate(32, 90) / inside, 93.0 / 280, 0.15);
}

// Guide 1: the all-to-all of a 24-layer DeepSeek-V3 on MI325X takes 10 % of the step within a host, and about
// half of it over four hosts without deduplication.
TEST(StepModel, ExpertRanksBeyondTheHostAreSlow) {
  ModelShape shape = find_architecture(builtin_architectures(), "DeepSeek-V3")->shape;
  shape.layers = 24;
  shape.moe.node_limit = 0;
  const auto share = [&](int64_t expert) {
    const TrainingJob job{.shape = shape,
                          .layout = {.pipeline = 4,
                                     .virtual_stages = 3,
                                     .data = 32,
                                     .expert = expert,
                                     .zero_stage = 1,
                                     .shards = 32,
                                     .micro_batches = 16},
                          .sequence = 4096,
                          .precision = Precision::kFp8};
    const StepTime step = step_time(job, profiles().stack("primus"), profiles(), cluster("mi325x"));
    return step.expert / step.total();
  };
  EXPECT_LT(share(8), 0.25);
  EXPECT_GT(share(32), 0.4);
  shape.moe.node_limit = 4;
  EXPECT_LE(share(32), 0.75);
}

}  // namespace
}  // namespace strata::planning
