// Step schedules: legal orders, their memory, and identical results under all of them.
#include "program/script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "fixtures/tiny_program.h"
#include "program/explain.h"

namespace strata::program {
namespace {

const Segment kF = Segment::kForward, kB = Segment::kBackward, kI = Segment::kInputGrad,
              kW = Segment::kWeightGrad;

std::string text_of(const Script& script) {
  std::string text;
  for (const Action& action : script)
    text += (text.empty() ? "" : " ") + str(action) + (action.accumulates ? "+" : "");
  return text;
}

TEST(Script, RunsMicroBatchesOneByOne) {
  EXPECT_EQ(text_of(make_script({.micro_batches = 3})), "F0 B0 F1+ B1+ F2+ B2+ update encode+");
  EXPECT_EQ(text_of(make_script({.backward = Backward::kSplit, .micro_batches = 2})),
            "F0 I0 W0 F1+ I1+ W1+ update encode+");
  EXPECT_EQ(text_of(make_script({.trains = false, .micro_batches = 2})), "F0 F1+");
}

TEST(Script, TheFirstActionOfASegmentOverwrites) {
  EXPECT_EQ(text_of(make_script({.backward = Backward::kSplit, .micro_batches = 2},
                                {{kF, 1}, {kF, 0}, {kI, 1, true}, {kI, 0}, {kW, 0}, {kW, 1}})),
            "F1 F0+ I1 I0+ W0 W1+ update encode+");
}

std::string refusal(const ScriptOptions& options, const Script& order) {
  try {
    make_script(options, order);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Script, NamesTheErrorInAnOrder) {
  const ScriptOptions combined{.micro_batches = 2}, split{.backward = Backward::kSplit, .micro_batches = 2};
  EXPECT_EQ(refusal(combined, {{kF, 0}, {kB, 0}, {kF, 1}, {kB, 1}}), "");
  EXPECT_NE(refusal(combined, {{kF, 0}, {kB, 0}, {kF, 1}}).find("B1 is missing"), std::string::npos);
  EXPECT_NE(refusal(combined, {{kF, 0}, {kB, 1}, {kF, 1}, {kB, 0}}).find("B1 comes before F1"),
            std::string::npos);
  EXPECT_NE(refusal(combined, {{kF, 0}, {kF, 0}, {kF, 1}, {kB, 1}}).find("F0 is there twice"),
            std::string::npos);
  EXPECT_NE(refusal(combined, {{kF, 0}, {kB, 0}, {kF, 2}, {kB, 2}}).find("micro-batch 2, and there are 2"),
            std::string::npos);
  EXPECT_NE(refusal(combined, {{kF, 0}, {kI, 0}}).find("I0 is not one of this program's actions"),
            std::string::npos);
  EXPECT_NE(
      refusal(combined, {{kF, 0}, {kB, 0}, {Segment::kUpdate}, {kF, 1}, {kB, 1}}).find("update is not one"),
      std::string::npos);
  EXPECT_NE(refusal(split, {{kF, 0}, {kW, 0}, {kI, 0}, {kF, 1}, {kI, 1}, {kW, 1}}).find("W0 comes before I0"),
            std::string::npos);
  EXPECT_NE(refusal({.trains = false, .micro_batches = 1}, {{kB, 0}}).find("B0 is not one"),
            std::string::npos);
}

TEST(Script, IsSequentialIfMicroBatchesDoNotInterleave) {
  EXPECT_TRUE(is_sequential(make_script({.micro_batches = 4})));
  EXPECT_TRUE(is_sequential(make_script({.micro_batches = 2}, {{kF, 1}, {kB, 1}, {kF, 0}, {kB, 0}})));
  EXPECT_FALSE(is_sequential(make_script({.micro_batches = 2}, {{kF, 0}, {kF, 1}, {kB, 0}, {kB, 1}})));
  EXPECT_FALSE(is_sequential(make_script({.backward = Backward::kSplit, .micro_batches = 2},
                                         {{kF, 0}, {kI, 0}, {kF, 1}, {kW, 0}, {kI, 1}, {kW, 1}})));
}

TEST(PoolBuffers, AreAsManyAsOverlap) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    // Every position of a schedule is the end of one span.
    const auto count = 1 + random() % 20;
    std::vector<int32_t> ends(2 * count);
    for (size_t i = 0; i < ends.size(); ++i) ends[i] = static_cast<int32_t>(i);
    std::shuffle(ends.begin(), ends.end(), random);
    std::vector<Span> spans;
    for (size_t i = 0; i < count; ++i)
      spans.push_back({std::min(ends[2 * i], ends[2 * i + 1]), std::max(ends[2 * i], ends[2 * i + 1])});
    const Slots slots = color(spans);
    int32_t most = 0;
    for (int32_t at = 0; at < static_cast<int32_t>(ends.size()); ++at) {
      most =
          std::max(most, static_cast<int32_t>(std::count_if(spans.begin(), spans.end(), [&](const Span& s) {
                     return s.first <= at && at <= s.last;
                   })));
    }
    ASSERT_EQ(slots.count, most);
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < i; ++j) {
        ASSERT_FALSE(slots.of[i] == slots.of[j] && spans[i].first <= spans[j].last &&
                     spans[j].first <= spans[i].last);
      }
    }
  }
}

// 1F1B on a pipeline's first stage: F of the first `ahead` micro-batches, then B and F alternately.
Script one_forward_one_backward(int32_t micro_batches, int32_t ahead) {
  Script order;
  for (int32_t i = 0; i < ahead; ++i) order.push_back({kF, i});
  for (int32_t i = 0; i < micro_batches; ++i) {
    order.push_back({kB, i});
    if (i + ahead < micro_batches) order.push_back({kF, i + ahead});
  }
  return order;
}

TEST(PoolBuffers, OfAFirstStageEqualThePipelineDepth) {
  Request request = tiny_request(8);
  request.order = one_forward_one_backward(8, 4);
  const auto set = compile({request}, tiny_options("llama3-5m"));
  const Program& program = set->programs[0];
  ASSERT_EQ(program.pools.size(), 1u);
  EXPECT_EQ(program.pools[0].name, "F→B");
  EXPECT_EQ(program.pools[0].slots, 4);
  EXPECT_EQ(program.pools[0].slot_of, (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
  // The pool holds values that backward reads, and values that reuse their bytes in place, but no others.
  const auto outputs_of = [&](Segment segment) {
    std::set<graph::ValueId> values;
    for (const Instruction& instruction : program.segment(segment)) {
      for (const graph::ValueId id : program.node_of(instruction).outputs) {
        if (id != graph::kNone && program.graph.value(id).role == graph::Role::kActivation) values.insert(id);
      }
    }
    return values;
  };
  const std::set<graph::ValueId> made = outputs_of(kF);
  std::set<int64_t> offsets;
  int crossing = 0;
  for (const Instruction& instruction : program.segment(kB)) {
    for (const graph::ValueId id : program.node_of(instruction).inputs) {
      if (!made.contains(id)) continue;
      const Place& place = program.places[static_cast<size_t>(id)];
      EXPECT_TRUE(is_in_pool(place.at.base)) << program.graph.value(id).name;
      offsets.insert(place.at.offset);
      ++crossing;
    }
  }
  for (const graph::ValueId id : outputs_of(kB)) {
    const Place& place = program.places[static_cast<size_t>(id)];
    EXPECT_TRUE(!is_in_pool(place.at.base) || offsets.contains(place.at.offset));
  }
  EXPECT_GT(crossing, 0);
  EXPECT_GT(program.pools[0].slot_bytes, 0);
}

TEST(PoolBuffers, OfASplitBackwardFollowTheLastReader) {
  CompileOptions options = tiny_options("llama3-5m");
  options.backward = Backward::kSplit;
  Request request = tiny_request(3);
  request.order = {{kF, 0}, {kI, 0}, {kF, 1}, {kI, 1}, {kF, 2}, {kI, 2}, {kW, 0}, {kW, 1}, {kW, 2}};
  const auto set = compile({request}, options);
  const Program& program = set->programs[0];
  ASSERT_EQ(program.pools.size(), 3u);
  for (const Pool& pool : program.pools) EXPECT_GT(pool.slot_bytes, 0) << pool.name;
  EXPECT_EQ(program.pools[0].slots, 1) << "F→I: one micro-batch at a time";
  EXPECT_EQ(program.pools[1].slots, 3) << "F→W";
  EXPECT_EQ(program.pools[2].slots, 3) << "I→W";
}

// Without overlap no pool is needed, and one plan for forward and backward lets gradients reuse the memory of
// activations.
TEST(PoolBuffers, NoneIfMicroBatchesRunOneByOne) {
  CompileOptions options = tiny_options("llama3-5m");
  Request backwards = tiny_request(3), overlapping = tiny_request(3);
  backwards.order = {{kF, 2}, {kB, 2}, {kF, 1}, {kB, 1}, {kF, 0}, {kB, 0}};
  overlapping.order = {{kF, 0}, {kF, 1}, {kB, 0}, {kB, 1}, {kF, 2}, {kB, 2}};
  const auto plain = compile({tiny_request(3)}, options), other = compile({backwards}, options),
             pooled = compile({overlapping}, options);
  EXPECT_TRUE(plain->programs[0].pools.empty());
  EXPECT_TRUE(other->programs[0].pools.empty());
  EXPECT_EQ(other->arena_bytes, plain->arena_bytes);
  EXPECT_EQ(plain->arena_bytes, compile({tiny_request(3)}, options)->arena_bytes);
  EXPECT_LT(plain->arena_bytes, pooled->arena_bytes);
  // Two buffers of a pool are at most twice as large as one plan.
  const Program& program = pooled->programs[0];
  EXPECT_LE(program.pools[0].slot_bytes, plain->programs[0].workspace.bytes);
  EXPECT_LE(program.workspace.bytes, plain->programs[0].workspace.bytes);
}

TEST(Segments, RecomputeValuesInTheSegmentOfTheirFirstReader) {
  for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
    CompileOptions options = tiny_options("llama3-5m");
    options.backward = Backward::kSplit;
    options.recompute = recompute;
    const auto set = compile({tiny_request(1)}, options);
    const Program& program = set->programs[0];
    std::set<graph::ValueId> read_by_i;
    for (const Instruction& instruction : program.segment(kI)) {
      const auto& inputs = program.node_of(instruction).inputs;
      read_by_i.insert(inputs.begin(), inputs.end());
    }
    int again_in_w = 0;
    for (const Segment segment : {kI, kW}) {
      for (const Instruction& instruction : program.segment(segment)) {
        const graph::Node& node = program.node_of(instruction);
        if (node.phase != graph::Phase::kRecompute) continue;
        again_in_w += segment == kW;
        EXPECT_EQ(segment == kI, std::any_of(node.outputs.begin(), node.outputs.end(),
                                             [&](graph::ValueId id) {
                                               return id != graph::kNone && read_by_i.contains(id);
                                             }))
            << name_of(recompute) << " " << node.op->name << " in " << name_of(segment);
      }
    }
    EXPECT_GT(again_in_w, 0) << name_of(recompute);
  }
}

// The plan does not depend on the number of micro-batches: the lists, the size of a pool's buffer and the
// plans requested from the device are the same.
TEST(PoolBuffers, PlanDoesNotGrowWithMicroBatches) {
  Request few = tiny_request(8), many = tiny_request(800);
  few.order = one_forward_one_backward(8, 4);
  many.order = one_forward_one_backward(800, 4);
  const auto small = compile({few}, tiny_options("llama3-5m")),
             large = compile({many}, tiny_options("llama3-5m"));
  const Program &a = small->programs[0], &b = large->programs[0];
  EXPECT_EQ(a.operands.size(), b.operands.size());
  EXPECT_EQ(a.plans.size(), b.plans.size());
  EXPECT_EQ(a.micro_batch_instructions(), b.micro_batch_instructions());
  EXPECT_EQ(a.workspace.bytes, b.workspace.bytes);
  EXPECT_EQ(a.pool_bytes(), b.pool_bytes());
  EXPECT_EQ(b.script.size(), 1602u);
}

void expect_same(const TinyRun& a, const TinyRun& b) {
  const auto left = a.state();
  const auto right = b.state();
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].first, right[i].first);
    EXPECT_TRUE(left[i].second == right[i].second) << left[i].first << " differs";
  }
}

// A legal order in which segments that write accumulators take micro-batches in ascending order, so that they
// add in the order of the default schedule: F the sums of the split loss, B or W the gradients. I may take
// any micro-batch after its F.
Script random_order(std::mt19937_64& random, Backward backward, int32_t micro_batches) {
  const bool split = backward == Backward::kSplit;
  const Segment last = split ? kW : kB;
  int32_t forward = 0, done = 0;
  std::vector<int32_t> waiting;                                        // for I
  std::vector<bool> ready(static_cast<size_t>(micro_batches), false);  // for W
  Script order;
  while (done < micro_batches) {
    switch (random() % 3) {
      case 0:
        if (forward == micro_batches) break;
        ready[static_cast<size_t>(forward)] = !split;
        waiting.push_back(forward);
        order.push_back({kF, forward++});
        break;
      case 1: {
        if (!split || waiting.empty()) break;
        const auto chosen = waiting.begin() + static_cast<std::ptrdiff_t>(random() % waiting.size());
        order.push_back({kI, *chosen});
        ready[static_cast<size_t>(*chosen)] = true;
        waiting.erase(chosen);
        break;
      }
      default:
        if (ready[static_cast<size_t>(done)]) order.push_back({last, done++});
    }
  }
  return order;
}

class AnyOrder : public testing::TestWithParam<std::tuple<const char*, DType, Recompute>> {
 protected:
  CompileOptions options(Backward backward) const {
    const auto& [preset, activations, recompute] = GetParam();
    CompileOptions options = tiny_options(preset);
    options.activations = activations;
    options.recompute = recompute;
    options.backward = backward;
    return options;
  }
};

TEST_P(AnyOrder, MatchesTheDefaultBitForBit) {
  constexpr int32_t kMicroBatches = 4;
  TinyRun plain(compile({tiny_request(kMicroBatches)}, options(Backward::kCombined)));
  for (int i = 0; i < 2; ++i) plain.step();
  std::mt19937_64 random(11);
  for (int round = 0; round < 6; ++round) {
    const Backward backward = round % 2 == 0 ? Backward::kCombined : Backward::kSplit;
    Request request = tiny_request(kMicroBatches);
    request.order = random_order(random, backward, kMicroBatches);
    SCOPED_TRACE(text_of(request.order));
    TinyRun other(compile({request}, options(backward)));
    for (int i = 0; i < 2; ++i) other.step();
    expect_same(plain, other);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AnyOrder,
                         testing::Combine(testing::Values("llama3-5m", "gpt2-124m"),  // a tied head too
                                          testing::Values(DType::kF32, DType::kBF16),
                                          testing::Values(Recompute::kNone, Recompute::kSelective,
                                                          Recompute::kFull)));

TEST(Explain, PrintsTheScheduleAndItsPools) {
  Request request = tiny_request(20);
  request.order = one_forward_one_backward(20, 3);
  const auto set = compile({request}, tiny_options("llama3-5m"));
  const std::string text = explain_program(set->programs[0], set->options.target.spec);
  EXPECT_NE(text.find("script: F0 F1 F2 B0 F3 B1"), std::string::npos) << text.substr(0, 400);
  EXPECT_NE(text.find(" … "), std::string::npos);
  EXPECT_NE(text.find("B19 update encode"), std::string::npos);
  EXPECT_NE(text.find("pool F→B: 3 buffers"), std::string::npos);
  EXPECT_NE(text.find("@F→B+"), std::string::npos);
}

}  // namespace
}  // namespace strata::program
