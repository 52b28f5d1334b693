#include "plan/model_shape.h"

#include <gtest/gtest.h>

#include "plan/layout.h"
#include "plan/row_job.h"

namespace strata::planning {
namespace {

ModelShape llama(int64_t layers, int64_t hidden, int64_t heads, int64_t ffn) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = 8,
          .head_dim = 128,
          .ffn = ffn,
          .vocab = 128256,
          .gated = true};
}
ModelShape gpt(int64_t layers, int64_t hidden, int64_t heads, int64_t vocab) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = hidden / heads,
          .ffn = 4 * hidden,
          .vocab = vocab,
          .gated = false,
          .tied = true};
}
const ModelShape kLlama8b = llama(32, 4096, 32, 14336);
const ModelShape kLlama70b = llama(80, 8192, 64, 28672);
const ModelShape kLlama405b = llama(126, 16384, 128, 53248);

void expect_within(double found, double expected, double share) {
  EXPECT_NEAR(found / expected, 1, share) << found << " against " << expected;
}

TEST(ModelShape, ParametersOfPublishedModels) {
  expect_within(count_parameters(kLlama8b).stored, 8.03e9, 0.001);
  expect_within(count_parameters(kLlama70b).stored, 70.55e9, 0.001);
  expect_within(count_parameters(kLlama405b).stored, 405.85e9, 0.001);
  // PaLM: one key-value head, heads of 256 that do not fill the hidden size.
  const ModelShape palm = {.layers = 118,
                           .hidden = 18432,
                           .heads = 48,
                           .kv_heads = 1,
                           .head_dim = 256,
                           .ffn = 73728,
                           .vocab = 256000,
                           .gated = true,
                           .tied = true};
  expect_within(count_parameters(palm).stored, 540.35e9, 0.001);
  // 238.3k tokens/s on 6144 TPU v4 of 275 TFLOP/s: 46.2 % with attention, 45.7 % without.
  const double rate = 238.3e3 / (6144 * 275e12);
  EXPECT_NEAR(rate * flops_per_token(palm, 2048, FlopConvention::kModelFull), 0.462, 0.0006);
  EXPECT_NEAR(rate * flops_per_token(palm, 2048, FlopConvention::kNoAttention), 0.457, 0.0006);
}

TEST(ModelShape, ParametersOfKnownArchitectures) {
  const std::vector<Architecture> all = builtin_architectures();
  EXPECT_GE(all.size(), 9u);
  for (const Architecture& architecture : all) {
    const ParameterCounts counts = count_parameters(architecture.shape);
    EXPECT_NEAR(counts.stored / architecture.parameters, 1, 0.02) << architecture.name;
    if (architecture.active_parameters > 0) {
      // Some publications leave out the embedding.
      const double active =
          architecture.name == "gpt-oss-120b" ? counts.active - counts.embedding : counts.active;
      EXPECT_NEAR(active / architecture.active_parameters, 1, 0.045) << architecture.name;
    }
    EXPECT_EQ(find_architecture(all, architecture.match[0] + " (proxy)"), &architecture);
  }
  EXPECT_EQ(find_architecture(all, "My-Grok-1"), nullptr);
}

TEST(ModelShape, FlopsOfATokenByConvention) {
  const auto causal = [](const ModelShape& shape, int64_t s) {
    return flops_per_token(shape, s, FlopConvention::kModelCausal);
  };
  expect_within(causal(kLlama8b, 8192), 5.15e10, 0.005);
  expect_within(causal(kLlama70b, 8192), 4.49e11, 0.005);
  expect_within(causal(kLlama405b, 8192), 2.52e12, 0.005);
  const std::vector<Architecture> all = builtin_architectures();
  ModelShape grok = find_architecture(all, "Grok-1")->shape;
  grok.vocab = 128256;
  expect_within(8192 * causal(grok, 8192), 4.27e15, 0.005);
  expect_within(causal(find_architecture(all, "DeepSeek-V3")->shape, 4096), 2.50e11, 0.01);
  // Of 8B at 8k, full attention and all parameters are 1.19 times causal attention and only the head.
  const double all_parameters = flops_per_token(kLlama8b, 8192, FlopConvention::kMosaic);
  EXPECT_NEAR(all_parameters / causal(kLlama8b, 8192), 1.19, 0.01);
}

TEST(ModelShape, FormulasOfPublications) {
  // Row sc21-t1-gpt-1t: 163 TFLOP/s with recomputation on 3072 GPUs, 3072 sequences of 2048 in 102.63 s.
  const ModelShape trillion = gpt(128, 25600, 160, 51200);
  const double hardware = flops_per_token(trillion, 2048, FlopConvention::kSc21Hardware);
  expect_within(hardware * 3072 * 2048 / 3072 / 163e12, 102.63, 0.001);
  // 2205.05198, table 5: 530B, 37.83 s on 280 GPUs of 312 TFLOP/s are 56.0 % of the model's FLOPs.
  const ModelShape mtnlg = gpt(105, 20480, 128, 51200);
  const double model = flops_per_token(mtnlg, 2048, FlopConvention::kSc21Model);
  expect_within(model * 573440 / 280 / 312e12 / 37.83, 0.560, 0.005);
  // The older formula without a gate and with full attention is 6 N + 12 L a d_h s.
  EXPECT_NEAR(flops_per_token(mtnlg, 2048, FlopConvention::kMegatron2024) /
                  flops_per_token(mtnlg, 2048, FlopConvention::kModelFull),
              1, 1e-6);
  // MPT-70B, 1039 tokens/s a GPU of 989 TFLOP/s: 0.4257 as printed.
  const double mosaic = flops_per_token(gpt(80, 8192, 64, 50368), 2048, FlopConvention::kMosaic);
  expect_within(1039 * mosaic / 989e12, 0.4257, 0.003);
  // GPT-3: 3.15e23 FLOPs for 300 billion tokens.
  expect_within(300e9 * flops_per_token(gpt(96, 12288, 96, 51200), 2048, FlopConvention::kNoAttention),
                3.15e23, 0.005);
}

TEST(Layout, BubbleAndActivationsOfSchedules) {
  const auto bubble = [](Layout layout) {
    const double units = bubble_units(layout);
    return units / (layout.micro_batches + units);
  };
  // Goldens of the reference: p 8, m 64.
  EXPECT_NEAR(bubble({.pipeline = 8, .micro_batches = 64}), 0.0986, 0.0001);
  EXPECT_NEAR(bubble({.pipeline = 8, .virtual_stages = 3, .micro_batches = 64}), 0.0352, 0.0001);
  // pipeline_schedules.md §2 for 8 stages and 32 micro-batches, in units of a third of a micro-batch.
  const auto units = [](PipelineSchedule schedule, int64_t v) {
    return 3 * bubble_units({.pipeline = 8, .virtual_stages = v, .micro_batches = 32, .schedule = schedule});
  };
  EXPECT_NEAR(units(PipelineSchedule::kGPipe, 1), 21, 1e-9);
  EXPECT_NEAR(units(PipelineSchedule::k1F1B, 1), 21, 1e-9);
  EXPECT_NEAR(units(PipelineSchedule::k1F1B, 4), 5.25, 1e-9);
  EXPECT_NEAR(units(PipelineSchedule::kZeroBubble, 1), 7, 1e-9);
  EXPECT_NEAR(units(PipelineSchedule::kZeroBubbleV, 2), 3.5, 1e-9);
  EXPECT_NEAR(units(PipelineSchedule::kVHalf, 2), 13, 1e-9);
  EXPECT_NEAR(units(PipelineSchedule::kVMin, 2), 13.5, 1e-9);
  const auto held = [](PipelineSchedule schedule, int64_t v) {
    return stages_in_flight({.pipeline = 8, .virtual_stages = v, .micro_batches = 32, .schedule = schedule});
  };
  EXPECT_EQ(held(PipelineSchedule::kGPipe, 1), 32);
  EXPECT_EQ(held(PipelineSchedule::k1F1B, 1), 8);
  EXPECT_EQ(held(PipelineSchedule::k1F1B, 2), 11.5);
  EXPECT_EQ(held(PipelineSchedule::k1F1B, 4), 9.75);
  EXPECT_EQ(held(PipelineSchedule::kVHalf, 2), 5);
  EXPECT_NEAR(held(PipelineSchedule::kVMin, 2), 4, 0.34);
  EXPECT_EQ(stages_in_flight({.pipeline = 8, .micro_batches = 3}), 3);
}

TEST(Layout, ConstraintsNameTheValues) {
  EXPECT_TRUE(layout_violations(kLlama70b,
                                {.tensor = 4, .pipeline = 4, .virtual_stages = 5, .micro_batches = 8}, 8192)
                  .empty());
  const auto first = [](const ModelShape& shape, const Layout& layout, int64_t sequence) {
    const auto all = layout_violations(shape, layout, sequence);
    return all.empty() ? std::string() : all[0];
  };
  EXPECT_EQ(first(kLlama70b, {.tensor = 3}, 8192), "tensor degree 3 does not divide 64 heads");
  EXPECT_EQ(first(kLlama70b, {.pipeline = 16, .virtual_stages = 6, .micro_batches = 16}, 8192),
            "96 stages are more than 80 layers");
  EXPECT_EQ(first(kLlama70b, {.pipeline = 4, .virtual_stages = 5, .micro_batches = 6}, 8192),
            "interleaving needs micro-batches in multiples of 4 stages, found 6");
  EXPECT_EQ(first(kLlama70b, {.tensor = 4, .context = 4}, 8200),
            "2 x context 4 x tensor 4 does not divide the sequence 8200");
  const ModelShape grok = find_architecture(builtin_architectures(), "Grok-1") != nullptr
                              ? builtin_architectures()[0].shape
                              : ModelShape();
  EXPECT_EQ(first(grok, {.data = 16, .expert = 16}, 8192), "expert degree 16 does not divide 8 experts");
  EXPECT_EQ(first(grok, {.data = 12, .expert = 8}, 8192),
            "expert degree 8 x expert tensor degree 1 does not divide the 12 ranks of a stage");
}

}  // namespace
}  // namespace strata::planning
