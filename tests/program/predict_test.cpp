#include "program/predict.h"
#include "hardware/roofline.h"

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <list>
#include <sstream>
#include <thread>

#include "device/cpu/probes.h"
#include "fixtures/tiny_program.h"
#include "program/explain.h"
#include "program/memory_report.h"

#include "base/json.h"

namespace strata::program {
namespace {

hardware::DeviceSpec plain_device() {
  hardware::DeviceSpec device;
  device.threads = 2;
  device.l3_bytes = 1 << 20;
  device.gemm_flops[hardware::Precision::kFp32] = 100e9;
  device.memory_bytes_per_s = 10e9;
  device.cache_bytes_per_s = 100e9;
  return device;
}

TEST(ExpectedSeconds, IsTheRooflineForUnmeasuredOps) {
  const auto device = plain_device();
  EXPECT_DOUBLE_EQ(hardware::expected_seconds(device, "unknown", "f32", {100e9, 1}, 0), 1.0);
  EXPECT_DOUBLE_EQ(hardware::expected_seconds(device, "unknown", "f32", {1, 10e9}, 1), 1.0);
  EXPECT_DOUBLE_EQ(hardware::expected_seconds(device, "unknown", "f32", {1, 10e9}, 0), 0.1);
  EXPECT_DOUBLE_EQ(hardware::expected_seconds(device, "unknown", "f32", {1, 10e9}, 0.5), 0.55);
}

TEST(ExpectedSeconds, InterpolatesBetweenProbes) {
  auto device = plain_device();
  for (const bool cold : {false, true}) {
    // 50 GFLOP/s at 100 FLOP per byte, 80 at 1000.
    device.rates.push_back({"linear", "f32", 50e9, 0.5e9, cold});
    device.rates.push_back({"linear", "f32", 80e9, 0.08e9, cold});
  }
  EXPECT_NEAR(hardware::expected_seconds(device, "linear", "f32", {50e9, 0.5e9}, 0), 1.0, 1e-9);
  EXPECT_NEAR(hardware::expected_seconds(device, "linear", "f32", {80e9, 0.08e9}, 1), 1.0, 1e-9);
  const double between = 60e9 / hardware::expected_seconds(device, "linear", "f32", {60e9, 0.2e9}, 0);
  EXPECT_GT(between, 50e9);
  EXPECT_LT(between, 80e9);
  // Additional bytes do not change the rate, but take their time.
  EXPECT_NEAR(hardware::expected_seconds(device, "linear", "f32", {80e9, 1e9, 0.92e9}, 1), 1.0, 1e-9);
  EXPECT_NEAR(hardware::expected_seconds(device, "linear", "f32", {80e9, 20e9, 19.92e9}, 1), 2.0, 1e-9);
  // Rates of memory-bound ops exclude them, too.
  for (const bool cold : {false, true}) device.rates.push_back({"copy", "f32", 0, 5e9, cold});
  EXPECT_NEAR(hardware::expected_seconds(device, "copy", "f32", {0, 6e9, 1e9}, 1), 1.0, 1e-9);
  // Far beyond the last probe, its rate applies; with few operations per byte, the bandwidth does.
  EXPECT_NEAR(hardware::expected_seconds(device, "linear", "f32", {80e9, 1}, 0), 1.0, 1e-9);
  EXPECT_NEAR(hardware::expected_seconds(device, "linear", "f32", {1e6, 10e9}, 1), 1.0, 1e-9);
}

TEST(ExpectedSeconds, OfWorkThatAddsHasRatesOfItsOwn) {
  auto device = plain_device();
  const hardware::Work plain{.flops = 60e9, .bytes = 0.6e9};
  hardware::Work adds = plain;
  adds.adds = true;
  for (const bool cold : {false, true}) device.rates.push_back({"grad", "f32", 60e9, 0.6e9, cold});
  EXPECT_NEAR(hardware::expected_seconds(device, "grad", "f32", adds, 1), 1, 1e-9) << "not measured so";
  for (const bool cold : {false, true}) device.rates.push_back({"grad", "f32", 20e9, 0.2e9, cold, true});
  EXPECT_NEAR(hardware::expected_seconds(device, "grad", "f32", adds, 1), 3, 1e-9);
  EXPECT_NEAR(hardware::expected_seconds(device, "grad", "f32", plain, 1), 1, 1e-9);
}

// The first micro-batch writes the gradients; the second adds to them.
TEST(Predict, LaterMicroBatchesAddToGradients) {
  const auto set = compile({tiny_request(2)}, tiny_options("llama3-5m"));
  const Program& program = set->programs[0];
  auto device = plain_device();
  device.memory_bytes_per_s = device.cache_bytes_per_s = 1e15;
  for (const bool cold : {false, true}) {
    device.rates.push_back({"linear_grad_weight", "f32", 60e9, 6e9, cold});
    device.rates.push_back({"linear_grad_weight", "f32", 6e9, 0.6e9, cold, true});
  }
  const auto seconds = [&](bool accumulates) {
    const auto expected = predict(program, Segment::kBackward, accumulates, device);
    const auto& list = program.segment(Segment::kBackward, accumulates);
    double sum = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      if (program.node_of(list[i]).op->name == "linear_grad_weight") sum += expected[i].seconds;
    }
    return sum;
  };
  EXPECT_GT(seconds(false), 0);
  EXPECT_NEAR(seconds(true), 10 * seconds(false), 1e-9 * seconds(true));
}

// An update reads values that no cache holds any more, and writes them to the same places.
TEST(Predict, UpdatesAreAsColdAsWhatTheyRead) {
  const auto set = compile({tiny_request()}, tiny_options("llama3-5m"));
  const Program& program = set->programs[0];
  auto device = plain_device();
  device.l3_bytes = 1 << 18;
  const auto expected = predict(program, Segment::kUpdate, false, device);
  size_t updates = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const graph::Node& node = program.node_of(program.segment(Segment::kUpdate)[i]);
    if (node.op->name != "adamw") continue;
    ++updates;
    // The gradient, a quarter of it, may still be there since its norm was computed, and the step's few scalars.
    EXPECT_GE(expected[i].cold_share, 0.65) << i;
  }
  EXPECT_GT(updates, 0u);
}

TEST(Predict, ModelsTheCache) {
  const auto set = compile({tiny_request()}, tiny_options("llama3-5m"));
  const Program& program = set->programs[0];
  auto device = plain_device();
  device.l3_bytes = int64_t{1} << 30;
  const auto large = predict(program, Segment::kForward, false, device);
  device.l3_bytes = 1024;
  const auto none = predict(program, Segment::kForward, false, device);
  ASSERT_EQ(large.size(), program.segment(Segment::kForward).size());
  EXPECT_EQ(large.front().cold_share, 1) << "the cache is empty at first";
  double sum_large = 0, sum_none = 0;
  for (size_t i = 0; i < large.size(); ++i) {
    sum_large += large[i].cold_share;
    sum_none += none[i].cold_share;
    EXPECT_LE(large[i].cold_share, none[i].cold_share + 1e-12);
    EXPECT_EQ(large[i].flops, none[i].flops);
  }
  EXPECT_LT(sum_large, 0.5 * sum_none);
}

// The share of each instruction's operands that is not in the cache, found by simulating a list of recently
// used ranges; `before` runs first.
std::vector<double> plainly_cold(const Program& program, std::optional<Segment> before, Segment segment,
                                 int64_t capacity) {
  std::list<std::pair<int64_t, int64_t>> recent;  // address and bytes, the newest first
  const auto touch = [&](int64_t address, int64_t bytes) {
    int64_t newer = 0;
    bool held = false;
    for (auto it = recent.begin(); it != recent.end(); ++it) {
      if (newer + bytes > capacity) {
        recent.erase(it, recent.end());
        break;
      }
      if (it->first == address) {
        held = it->second >= bytes;
        recent.erase(it);
        break;
      }
      newer += it->second;
    }
    recent.emplace_front(address, bytes);
    return held;
  };
  std::vector<double> shares;
  std::vector<Instruction> list;
  if (before) list = program.segment(*before);
  const size_t skipped = list.size();
  list.insert(list.end(), program.segment(segment).begin(), program.segment(segment).end());
  for (const Instruction& instruction : list) {
    const graph::Node& node = program.node_of(instruction);
    double all = 0, cold = 0;
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const graph::ValueId id : *ids) {
        const bool is_updated =
            ids == &node.outputs && std::count(node.inputs.begin(), node.inputs.end(), id) > 0;
        if (id == graph::kNone || is_updated) continue;
        const Place& place = program.places[static_cast<size_t>(id)];
        all += static_cast<double>(place.bytes);
        if (!touch(place.at.offset * 2 + (place.at.base == kInBatch), place.bytes))
          cold += static_cast<double>(place.bytes);
      }
    }
    shares.push_back(all > 0 ? cold / all : 0);
  }
  shares.erase(shares.begin(), shares.begin() + static_cast<std::ptrdiff_t>(skipped));
  return shares;
}

TEST(Predict, TheCacheKeepsRecentlyUsedValues) {
  const auto set = compile({tiny_request()}, tiny_options("gpt2-124m"));
  auto device = plain_device();
  for (const int64_t capacity : {1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 24}) {
    device.l3_bytes = capacity;
    for (const auto& [before, segment] : {std::pair<std::optional<Segment>, Segment>{{}, Segment::kForward},
                                          {Segment::kForward, Segment::kBackward},
                                          {Segment::kBackward, Segment::kUpdate}}) {
      const auto expected = predict(set->programs[0], segment, false, device);
      const auto plain = plainly_cold(set->programs[0], before, segment, hardware::cache_bytes(device));
      ASSERT_EQ(expected.size(), plain.size());
      for (size_t i = 0; i < plain.size(); ++i)
        ASSERT_EQ(expected[i].cold_share, plain[i]) << capacity << " bytes, " << instruction_id(segment, i);
    }
  }
}

TEST(Predict, AStepIsTheSumOfItsFamilies) {
  const auto one = compile({tiny_request(1)}, tiny_options("llama3-5m"));
  const auto three = compile({tiny_request(3)}, tiny_options("llama3-5m"));
  const auto device = plain_device();
  const StepTotal total = predict_step(one->programs[0], device);
  double seconds = 0, flops = 0;
  for (const FamilyTotal& family : total.families) {
    seconds += family.seconds;
    flops += family.flops;
  }
  EXPECT_NEAR(seconds, total.seconds, 1e-12);
  EXPECT_NEAR(flops, total.flops, 1);
  auto gemm = [&](const ProgramSet& set) {
    for (const FamilyTotal& family : predict_step(set.programs[0], device).families) {
      if (family.family == "gemm") return family.flops;
    }
    return 0.0;
  };
  EXPECT_DOUBLE_EQ(gemm(*three), 3 * gemm(*one));
  // All matmuls of a step take six operations per parameter and token; the embedding's look-up takes none.
  const auto expected = models::training_flops_per_token(one->options.model, 24) * 48;
  EXPECT_NEAR(total.flops, expected, 0.25 * expected);
}

// Masked models have a target for one token in seven; the loss skips the others.
TEST(Predict, TokensWithoutATargetCostTheLossNothing) {
  for (const Backward backward : {Backward::kCombined, Backward::kSplit}) {
    const auto loss_flops = [&](double share) {
      CompileOptions options = tiny_options("bert-base");
      options.backward = backward;
      Request request = tiny_request();
      request.target_share = share;
      const auto set = compile({request}, options);
      for (const FamilyTotal& family : predict_step(set->programs[0], plain_device()).families) {
        if (family.family == "loss") return family.flops;
      }
      return 0.0;
    };
    EXPECT_GT(loss_flops(1), 0);
    EXPECT_NEAR(loss_flops(0.15), 0.15 * loss_flops(1), 1e-2 * loss_flops(1));
  }
}

TEST(MeasureOps, MeasuresRatesOfEveryKind) {
  hardware::DeviceSpec device = plain_device();
  device.threads = compute_threads();
  const auto rates = device::measure_ops(device, 0.0, "rms_norm");
  ASSERT_EQ(rates.size(), 6u) << "three ops, in the cache and in memory";
  for (const auto& rate : rates) {
    EXPECT_GT(rate.bytes_per_s, 0) << rate.family;
    EXPECT_EQ(rate.dtype, "f32");
  }
}

TEST(MeasureOps, MeasuresGradientsOfWeightsAlsoAsTheyAdd) {
  hardware::DeviceSpec device = hardware::detect_cpu(compute_threads());
  for (const auto precision : {hardware::Precision::kFp32, hardware::Precision::kBf16})
    device.gemm_flops[precision] = 1e11;  // bf16, which is not fast then, is not measured
  size_t adding = 0, plain = 0;
  for (const auto& rate : device::measure_ops(device, 0.0, "linear_grad_weight")) {
    EXPECT_GT(rate.flops_per_s, 0);
    ++(rate.adds ? adding : plain);
  }
  EXPECT_GT(plain, 0u);
  EXPECT_EQ(adding, plain);
}

// Ranks that measure at the same time take each measurement together, and as many as the one that ends first.
TEST(MeasureOps, OfSeveralRanksKeepsThemTogether) {
  constexpr int kRanks = 2;
  std::barrier meeting(kRanks);
  std::array<int, kRanks> calls{};
  std::array<size_t, kRanks> rates{};
  std::array<std::thread, kRanks> ranks;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ranks[rank] = std::thread([&, rank] {
      set_compute_threads(1);
      hardware::DeviceSpec device = plain_device();
      device.threads = 1;
      const auto together = [&](bool goes_on) {
        ++calls[rank];
        meeting.arrive_and_wait();
        return goes_on;
      };
      // Without time: two passes.
      rates[rank] = device::measure_ops(device, 0.0, "rms_norm", together).size();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(rates[0], 6u);
  EXPECT_EQ(rates[1], 6u);
  // Whether bf16 is fast, whether to go on before each of two passes and after them, and each probe.
  EXPECT_EQ(calls[0], 1 + 3 + 2 * 6);
  EXPECT_EQ(calls[1], calls[0]);
}

TEST(Explain, FitsATerminalAndNamesEveryOp) {
  CompileOptions options = tiny_options("llama3-5m");
  options.model.layers = 6;
  const auto set = compile({tiny_request(2)}, options);
  const std::string text = explain_program(set->programs[0], plain_device()) + explain_memory(*set) +
                           explain_totals(predict_step(set->programs[0], plain_device()));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    // Columns, not bytes: "×" and "–" have several bytes.
    const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
    EXPECT_LE(columns, 110) << line;
  }
  for (const auto& node : set->programs[0].graph.nodes())
    EXPECT_NE(text.find(node.op->name), std::string::npos) << node.op->name;
  EXPECT_NE(text.find("(layers 1 to 5)"), std::string::npos) << "repeated layers are printed once";
  EXPECT_NE(text.find(std::to_string(set->arena_bytes) + " bytes"), std::string::npos);
}

TEST(Explain, JsonHoldsEveryInstruction) {
  const auto set = compile({tiny_request(2)}, tiny_options("gpt2-124m"));
  const auto json = parse_json<nlohmann::json>(explain_json(*set, plain_device()));
  const Program& program = set->programs[0];
  size_t lists = 0;
  for (int s = 0; s < kSegments; ++s) {
    for (const bool accumulates : {false, true}) {
      const auto segment = static_cast<Segment>(s);
      const std::string name = name_of(segment, accumulates);
      const auto list = json["programs"][0]["segments"].value(name, nlohmann::json::array());
      ASSERT_EQ(list.size(), program.segment(segment, accumulates).size()) << name;
      lists += !list.empty();
      for (size_t i = 0; i < list.size(); ++i) {
        EXPECT_EQ(list[i]["id"], name + "." + std::to_string(i));
        EXPECT_EQ(list[i]["queue"], "compute");
        EXPECT_TRUE(list[i]["waits"].empty());
        EXPECT_EQ(list[i]["signals"], false);
      }
    }
  }
  EXPECT_EQ(lists, 5u) << "forward, backward, their accumulating forms and the update";
  EXPECT_EQ(json["programs"][0]["script"], nlohmann::json({"F0", "B0", "F1", "B1", "update", "encode"}));
  EXPECT_TRUE(json["programs"][0]["pools"].empty());
  EXPECT_EQ(json["arena_bytes"], set->arena_bytes);
  EXPECT_EQ(json["programs"][0]["workspace"]["bytes"], program.workspace.bytes);
  int64_t regions = 0;
  for (const auto& region : json["regions"]) regions += region["bytes"].get<int64_t>();
  EXPECT_EQ(regions, set->arena_bytes);
}

}  // namespace
}  // namespace strata::program
