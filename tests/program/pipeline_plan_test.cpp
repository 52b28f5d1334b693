// The plan of a pipeline's rank: pool sizes compared with the schedule, memory and traffic of a model on
// thousands of ranks compared with published formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "fixtures/tiny_program.h"
#include "parallel/simulate.h"
#include "pipeline_model.h"
#include "program/traffic.h"

namespace strata::program {
namespace {

int32_t buffers_in(const Program& program, const std::string& pool) {
  for (const Pool& one : program.pools) {
    if (one.name == pool) return one.slots;
  }
  return -1;
}

class PipelinePools : public testing::TestWithParam<parallel::ScheduleRequest> {};

TEST_P(PipelinePools, HaveABufferForEachMicroBatchInFlight) {
  CompileOptions options = tiny_options("llama3-5m");
  options.model.layers = 16;
  const parallel::ScheduleRequest& request = GetParam();
  options.mesh = graph::Mesh::of(1, 1, 1, 1, request.ranks);
  const Pipeline pipeline = pipeline_of(request, options.model);
  const auto live = parallel::live_counts(pipeline.schedule);
  for (int32_t place = 0; place < request.ranks; ++place) {
    const auto set = compile({{.kind = Kind::kTrain,
                               .sequences = 1,
                               .sequence_length = 8,
                               .micro_batches = request.micro_batches}},
                             at_place(options, pipeline, place));
    const Program& program = set->programs[0];
    // Without overlap no pool is needed.
    if (buffers_in(program, "F→B") < 0 && buffers_in(program, "F→W") < 0) {
      EXPECT_LE(live[static_cast<size_t>(place)].forward_to_weight_grad, 1);
      continue;
    }
    const parallel::LiveCounts& counts = live[static_cast<size_t>(place)];
    if (pipeline.splits_backward()) {
      EXPECT_EQ(buffers_in(program, "F→I"), counts.forward_to_input_grad) << place;
      EXPECT_EQ(buffers_in(program, "F→W"), counts.forward_to_weight_grad) << place;
      EXPECT_EQ(buffers_in(program, "I→W"), counts.input_to_weight_grad) << place;
    } else {
      EXPECT_EQ(buffers_in(program, "F→B"), counts.forward_to_weight_grad) << place;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, PipelinePools,
                         testing::Values(parallel::ScheduleRequest{"gpipe", 3, 5, 1},
                                         parallel::ScheduleRequest{"1f1b", 4, 8, 1},
                                         parallel::ScheduleRequest{"1f1b", 4, 3, 1},
                                         parallel::ScheduleRequest{"interleaved", 4, 8, 2},
                                         parallel::ScheduleRequest{"zb_h1", 4, 8, 1},
                                         parallel::ScheduleRequest{"interleaved_zb", 2, 6, 2},
                                         parallel::ScheduleRequest{"zbv", 4, 8, 1},
                                         parallel::ScheduleRequest{"v_half", 4, 8, 1},
                                         parallel::ScheduleRequest{"v_min", 4, 8, 1},
                                         parallel::ScheduleRequest{"dualpipev", 2, 6, 1}),
                         [](const auto& one) { return one.param.name + "_" + std::to_string(one.index); });

// Llama 3.1 405B as it was trained (Grattafiori et al. 2024): tensor 8, pipeline 16, data 128.
TEST(AtScale, ARankOfLlama405B) {
  CompileOptions options;
  options.model = models::preset("llama3.1-405b");
  options.activations = DType::kBF16;
  options.rule_of = tiny_options("llama3-5m").rule_of;
  options.target = tiny_options("llama3-5m").target;
  options.recompute = Recompute::kNone;
  options.zero = 1;
  constexpr int32_t kStages = 16, kMicroBatches = 16;
  constexpr double kTensor = 8, kData = 128, kTokens = 8192;
  options.mesh = graph::Mesh::of(1, 128, 1, 8, kStages);
  const Pipeline pipeline = pipeline_of({"1f1b", kStages, kMicroBatches, 1}, options.model);
  const models::ModelConfig& model = options.model;
  const auto d = static_cast<double>(model.hidden_size), f = static_cast<double>(model.intermediate_size);
  const auto q = static_cast<double>(model.q_width()), kv = static_cast<double>(model.kv_width());
  const double layer = (d * (q + 2 * kv) + q * d + 3 * d * f) / kTensor + 2 * d;
  const double heads = static_cast<double>(model.heads);
  for (const int32_t place : {1, 7, 14}) {
    const auto set = compile({{.kind = Kind::kTrain,
                               .sequences = 1,
                               .sequence_length = static_cast<int64_t>(kTokens),
                               .micro_batches = kMicroBatches}},
                             at_place(options, pipeline, place));
    const parallel::StageParts& parts = pipeline.layout[static_cast<size_t>(place)];
    const double layers = parts.layers, parameters = layers * layer;
    std::map<graph::Role, double> held;
    for (const Persistent& entry : set->persistent) held[entry.role] += static_cast<double>(entry.bytes);
    const auto expect = [&](double found, double wanted, const char* what) {
      EXPECT_NEAR(found, wanted, 0.02 * wanted) << what << " of stage " << place;
    };
    expect(held[graph::Role::kParameter], 4 * parameters / kData, "masters");
    expect(held[graph::Role::kGradient], 4 * parameters, "gradients");
    expect(held[graph::Role::kState], 8 * parameters / kData, "states");

    // Activations that a layer saves per micro-batch with sequence parallelism (Korthikanti et al. 2022,
    // without dropout, with RMSNorm, rotary positions and a gated FFN; the sums of the softmax instead of its
    // output): the inputs and outputs of both norms, q, k and v, the output of attention, gate, up and
    // gate times up.
    const double bf16 = 2, rows = kTokens / kTensor;
    const double kept = bf16 * (4 * rows * d + kTokens * (q + 2 * kv + q + 2 * f + f) / kTensor) +
                        4 * (kTokens * heads / kTensor + 2 * rows);
    const Program& program = set->programs[0];
    const auto pool = std::find_if(program.pools.begin(), program.pools.end(),
                                   [](const Pool& one) { return one.name == "F→B"; });
    ASSERT_NE(pool, program.pools.end());
    EXPECT_EQ(pool->slots, kStages - place);
    expect(static_cast<double>(pool->slot_bytes), layers * kept, "activations");

    std::map<std::string, double> sent;
    for (const AxisTraffic& one : traffic_of(program, options))
      sent[one.axis] = static_cast<double>(one.sent_bytes);
    // One message each way per micro-batch.
    expect(sent["pipeline"], kMicroBatches * 2 * rows * d * bf16, "messages");
    // A reduce-scatter of gradients in fp32 and a gather of weights in bf16.
    expect(sent["shard"], (4 + bf16) * parameters * (kData - 1) / kData, "ZeRO");
    // A layer gathers or scatters four times in forward and four times in backward, and gathers twice more
    // for the gradients of its weights.
    expect(sent["tensor"], kMicroBatches * layers * 10 * kTokens * d * bf16 * (kTensor - 1) / kTensor,
           "tensor");
  }
}

// Only the step schedule, batches and pools grow with the number of micro-batches or ranks.
TEST(AtScale, InstructionsDoNotGrow) {
  CompileOptions options = tiny_options("llama3-5m");
  options.model.layers = 8;
  const auto instructions = [&](int64_t data, int32_t micro_batches) {
    options.mesh = graph::Mesh::of(data, 1, 1, 1, 4);
    const auto set = compile(
        {{.kind = Kind::kTrain, .sequences = 1, .sequence_length = 8, .micro_batches = micro_batches}},
        at_place(options, pipeline_of({"zb_h1", 4, micro_batches, 1}, options.model), 1));
    size_t count = 0;
    for (const SegmentAt& at : all_segments(set->programs[0].chunks()))
      count += set->programs[0].segment(at).size();
    return count;
  };
  EXPECT_EQ(instructions(2, 4), instructions(2, 64));
  EXPECT_EQ(instructions(2, 8), instructions(4096, 8));
}

}  // namespace
}  // namespace strata::program
