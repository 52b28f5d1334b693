// Recurrences against themselves token by token in fp64, and what must not change their bits.
#include "kernels/cpu/recurrence.h"

#include <fmt/format.h>

#include "fixtures/every_target.h"
#include "kernels/cpu/recurrence_testing.h"

namespace strata::cpu {
namespace {

using namespace recurrence_testing;

constexpr Rule kRules[] = {Rule::kHead, Rule::kChannel, Rule::kSpace};

// Heads whose numbers and sizes differ; by channel each key head has one value head.
Sizes sizes(Rule rule, int64_t rows, int64_t chunk) {
  return {.ranges = 2,
          .rows = rows,
          .key_heads = rule == Rule::kChannel ? 3 : 1,
          .value_heads = 3,
          .key_dim = 24,
          .value_dim = 20,
          .chunk = chunk};
}

struct Case {
  const char* name;
  Rule rule;
  double decay, alike;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class Recurrences : public ::testing::TestWithParam<Case> {};

// Chunks of whole and of partial blocks, longer than a range and shorter; 1 row; the bound of fp32 that the
// formulas reach (relative to the norm of each gradient).
TEST_P(Recurrences, AreTheirTokensOneByOne) {
  const Case& c = GetParam();
  for (const auto& [rows, chunk] :
       {std::pair<int64_t, int64_t>{1, 64}, {7, 16}, {150, 16}, {150, 64}, {150, 128}, {70, 20}}) {
    SCOPED_TRACE(fmt::format("{} rows in chunks of {}", rows, chunk));
    Problem p = problem_of(c.rule, sizes(c.rule, rows, chunk), c.decay, c.alike);
    add_states(p, 5);
    expect_close(p, computed(p), expected(p), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Recurrences,
                         ::testing::Values(Case{"head_weak", Rule::kHead, 0.05, 0},
                                           Case{"head", Rule::kHead, 5, 0},
                                           Case{"head_equal_keys", Rule::kHead, 0.2, 1},
                                           Case{"head_alike_keys", Rule::kHead, 1, 0.95},
                                           Case{"channel_weak", Rule::kChannel, 0.05, 0},
                                           Case{"channel", Rule::kChannel, 5, 0},
                                           Case{"channel_equal_keys", Rule::kChannel, 0.2, 1},
                                           Case{"channel_alike_keys", Rule::kChannel, 1, 0.95},
                                           Case{"space_weak", Rule::kSpace, 0.05, 0},
                                           // dt of up to 0.1 and A = 72
                                           Case{"space", Rule::kSpace, 7.2, 0}),
                         [](const auto& one) { return std::string(one.param.name); });

// Sums of transformers' results (tools/golden/recurrence.py): of each its dot with cos(0.37 i).
TEST(Recurrence, IsThatOfTransformers) {
  const auto numbers = [](int stream, int64_t n, double scale = 1, double shift = 0) {
    std::vector<float> all;
    for (int64_t i = 0; i < n; ++i)
      all.push_back(
          static_cast<float>(shift + scale * std::sin(0.731 * static_cast<double>(i) + 1.3 * stream)));
    return all;
  };
  const auto total = [](const Numbers& of) {
    double sum = 0;
    for (size_t i = 0; i < of.size(); ++i) sum += of[i] * std::cos(0.37 * static_cast<double>(i));
    return sum;
  };
  struct Golden {
    Rule rule;
    Numbers
        sums;  // of the outputs, and of the gradients of q, k, v, g and β; or, in place of the latter, of dt
  };
  for (const Golden& golden :
       {Golden{Rule::kHead, {2.1495999, -1.8683388, -11.083252, -1.505575, -0.93038667, -0.50734458}},
        Golden{Rule::kChannel, {-8.0331615, -3.5380061, -0.56879405, 1.5442623, 2.004834, -1.622231}},
        Golden{Rule::kSpace, {1.6089051, -6.5992589, 6.6903492, -6.0883934, 0.050244582}}}) {
    constexpr int64_t kRows = 20, kHeads = 2, kKeys = 3, kValues = 5;
    const bool channel = golden.rule == Rule::kChannel, space = golden.rule == Rule::kSpace;
    Problem p{.shape = shape_of(golden.rule, {.rows = kRows,
                                              .key_heads = channel ? kHeads : 1,
                                              .value_heads = kHeads,
                                              .key_dim = kKeys,
                                              .value_dim = kValues,
                                              .chunk = 16})};
    const RecurrenceShape& s = p.shape;
    p.mixed = Array(DType::kF32, kRows * s.width);
    const auto fill = [&](int stream, int64_t first, int64_t width) {
      const std::vector<float> all = numbers(stream, kRows * width);
      for (int64_t i = 0; i < kRows * width; ++i)
        p.mixed.set(i / width * s.width + first + i % width,
                    static_cast<double>(all[static_cast<size_t>(i)]));
    };
    const int64_t keys = s.key_heads * kKeys, values = kHeads * kValues;
    fill(1, s.q_first, keys);
    fill(2, s.k_first, keys);
    fill(3, s.v_first, values);
    p.beta = numbers(5, kRows * kHeads, space ? 0.4 : 0.9, space ? 0.5 : 1);
    const float a[] = {-1.5f, -0.3f};
    if (space) {
      for (size_t i = 0; i < p.beta.size(); ++i) p.g.push_back(a[i % 2] * p.beta[i]);
      p.skip = {0.7f, -0.2f};
    } else {
      p.g = numbers(4, kRows * kHeads * (channel ? kKeys : 1), 0.4, -0.5);
    }
    p.dout = Array(DType::kF32, kRows * values);
    const std::vector<float> dout = numbers(9, kRows * values);
    for (int64_t i = 0; i < kRows * values; ++i)
      p.dout.set(i, static_cast<double>(dout[static_cast<size_t>(i)]));
    const Results found = computed(p);
    Numbers last = found.dbeta;  // of dt, which g is a multiple of
    for (size_t i = 0; i < last.size() && space; ++i) last[i] += static_cast<double>(a[i % 2]) * found.dg[i];
    Numbers sums{total(found.out), total(columns(found.dmixed, s.width, s.q_first, keys)),
                 total(columns(found.dmixed, s.width, s.k_first, keys)),
                 total(columns(found.dmixed, s.width, s.v_first, values))};
    if (!space) sums.push_back(total(found.dg));
    sums.push_back(total(last));
    ASSERT_EQ(sums.size(), golden.sums.size());
    for (size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(sums[i], golden.sums[i], 2e-5) << "sum " << i;
  }
}

// β = 2 mirrors the state in the hyperplane of the key. Without decay the rounding of equal keys adds up from
// token to token, and no more than that.
TEST(Recurrence, OfMirrorsStaysBounded) {
  for (const Rule rule : {Rule::kHead, Rule::kChannel}) {
    const Problem p = problem_of(rule, sizes(rule, 400, 64), 0, 1);
    expect_close(p, computed(p), expected(p), 400 * 3 * 0x1p-24);
  }
}

TEST(Recurrence, InBf16IsRoundedOnce) {
  for (const Rule rule : kRules) {
    const Problem p = problem_of(rule, sizes(rule, 50, 32), 1, 0, 3, DType::kBF16);
    const Results found = computed(p), wanted = expected(p);
    EXPECT_LT(distance(found.out, wanted.out), 3e-3);
    EXPECT_LT(distance(found.dmixed, wanted.dmixed), 3e-3);
    EXPECT_LT(distance(found.dg, wanted.dg), 1e-5);
  }
}

// With the processor's instructions for bf16, operands are rounded too; states and the solve are not.
TEST(Recurrence, InBf16RoundsOperandsOfOutputs) {
  for (const Rule rule : kRules) {
    Problem p = problem_of(rule, sizes(rule, 150, 64), 1, 0, 3, DType::kBF16);
    add_states(p, 5);
    expect_close(p, computed(p, 1, true), expected(p), 6e-3);
  }
}

// Nothing overflows or becomes NaN if a chunk forgets all of its state.
TEST(Recurrence, ForgetsWithoutOverflow) {
  for (const Rule rule : kRules) {
    for (const double decay : {5.0, 100.0, 3000.0}) {
      SCOPED_TRACE(decay);
      Problem p = problem_of(rule, sizes(rule, 150, 64), decay);
      for (float& g : p.g) g = static_cast<float>(-decay);
      add_states(p, 5);
      const Results found = computed(p), wanted = expected(p);
      for (const Numbers* of : {&found.out, &found.dmixed, &found.dg, &found.dbeta, &found.dbefore}) {
        for (const double one : *of) ASSERT_TRUE(std::isfinite(one));
      }
      // dg is as small as the remaining state.
      EXPECT_LT(distance(found.out, wanted.out), 1e-5);
      EXPECT_LT(distance(found.dmixed, wanted.dmixed), 1e-5);
      for (size_t i = 0; i < found.dg.size(); ++i) EXPECT_NEAR(found.dg[i], wanted.dg[i], 1e-4);
    }
  }
}

// The rows [begin, begin + count) of a problem of one range, as one by itself.
Problem rows_of(const Problem& p, int64_t begin, int64_t count) {
  Problem part{.shape = p.shape};
  part.shape.ranges = 1;
  part.shape.rows = count;
  const auto some = [&](const std::vector<float>& of) {
    const auto width = static_cast<int64_t>(of.size()) / p.rows();
    return std::vector<float>(of.begin() + begin * width, of.begin() + (begin + count) * width);
  };
  const auto some_of = [&](const Array& of) {
    const int64_t width = of.size() / p.rows();
    Array to(of.dtype(), count * width);
    for (int64_t i = 0; i < count * width; ++i) to.set(i, of[begin * width + i]);
    return to;
  };
  part.g = some(p.g);
  part.beta = some(p.beta);
  part.skip = p.skip;
  part.mixed = some_of(p.mixed);
  part.dout = some_of(p.dout);
  return part;
}
void append(Results& to, const Results& more) {
  const auto add = [](Numbers& a, const Numbers& b) { a.insert(a.end(), b.begin(), b.end()); };
  add(to.out, more.out);
  add(to.dmixed, more.dmixed);
  add(to.dg, more.dg);
  add(to.dbeta, more.dbeta);
}

TEST(Recurrence, OfPackedDocumentsIsThatOfEachAlone) {
  for (const Rule rule : kRules) {
    Sizes n = sizes(rule, 150, 64);
    n.ranges = 1;
    Problem p = problem_of(rule, n, 0.3);
    // Within a block, at a block's begin and at a chunk's, of one row, over several chunks.
    const int64_t ends[] = {3, 16, 17, 64, 140, 150};
    Results alone;
    int64_t begin = 0;
    for (const int64_t end : ends) {
      for (int64_t row = begin; row < end; ++row) p.positions.push_back(static_cast<int32_t>(row - begin));
      append(alone, computed(rows_of(p, begin, end - begin)));
      begin = end;
    }
    expect_close(p, computed(p), alone, 1e-5);
    // The decay of a document's first row meets no state.
    const Results found = computed(p);
    const size_t each = found.dg.size() / 150;
    for (const size_t row : {0UL, 3UL, 16UL, 17UL, 64UL, 140UL}) {
      for (size_t i = 0; i < each; ++i) EXPECT_EQ(found.dg[row * each + i], 0.0);
    }
  }
}

TEST(Recurrence, SameBitsForAnyThreads) {
  for (const Rule rule : kRules) {
    // 40 value heads share a key head: several tasks have one group.
    Sizes n = sizes(rule, 70, 32);
    n.value_heads = rule == Rule::kChannel ? 3 : 40;
    const Problem p = problem_of(rule, n, 0.5, 0, 1, DType::kBF16);
    testing::expect_same_bits([&] {
      const Results found = computed(p, 3, true);
      std::vector<std::byte> bytes;
      for (const Numbers* of : {&found.out, &found.dmixed, &found.dg, &found.dbeta, &found.dbefore}) {
        const auto* const from = reinterpret_cast<const std::byte*>(of->data());
        bytes.insert(bytes.end(), from, from + of->size() * sizeof(double));
      }
      return bytes;
    });
  }
}

TEST(Recurrence, OfManyHeadsOfOneKeyHeadIsItsTokens) {
  for (const Rule rule : {Rule::kHead, Rule::kSpace}) {
    Sizes n = sizes(rule, 40, 32);
    n.value_heads = 40;
    const Problem p = problem_of(rule, n, 0.5);
    expect_close(p, computed(p), expected(p), 1e-5);
  }
}

Numbers outputs(const Problem& p, bool pairs) {
  const RecurrencePlan plan = plan_recurrence(p.shape, device_of(1, pairs));
  Array out(p.shape.dtype, p.dout.size()), scratch = testing::scratch_of(plan.forward_bytes);
  recurrence_forward(plan, out.data(), p.inputs(), scratch.data());
  return out.values();
}

// Neither the bits of later rows nor their number change those of a row.
TEST(Recurrence, DoesNotReadLaterRows) {
  for (const Rule rule : kRules) {
    Sizes n = sizes(rule, 100, 64);
    n.ranges = 1;
    const Problem p = problem_of(rule, n, 2);
    const Numbers all = computed(p).out;
    for (const int64_t rows : {1, 9, 16, 40, 64, 70}) {
      SCOPED_TRACE(rows);
      const Numbers less = computed(rows_of(p, 0, rows)).out;
      EXPECT_TRUE(std::equal(less.begin(), less.end(), all.begin()));
      Problem other = p;
      const auto change = [&](std::vector<float>& of) {
        for (auto i = static_cast<size_t>(rows) * of.size() / 100; i < of.size(); ++i)
          of[i] = 1.7f * of[i] - 0.1f;
      };
      change(other.g);
      change(other.beta);
      for (int64_t i = rows * p.shape.width; i < p.mixed.size(); ++i) other.mixed.set(i, 3 - p.mixed[i]);
      other.positions.assign(100, 1);
      for (int64_t row = rows; row < 100; row += 5) other.positions[static_cast<size_t>(row)] = 0;
      const Numbers changed = computed(other).out;
      EXPECT_TRUE(std::equal(less.begin(), less.end(), changed.begin()));
    }
  }
}

// Nor do other values of an earlier document change the bits of a later one.
TEST(Recurrence, LeavesDocumentsToThemselves) {
  constexpr int64_t kRows = 100, kBegin = 11;
  for (const Rule rule : kRules) {
    Sizes n = sizes(rule, kRows, 64);
    n.ranges = 1;
    Problem p = problem_of(rule, n, 0.5);
    for (int32_t row = 0; row < kRows; ++row)
      p.positions.push_back(row < kBegin ? row : row < 50 ? row - static_cast<int32_t>(kBegin) : row - 50);
    const Numbers all = computed(p).out;
    Problem other = p;
    for (size_t i = 0; i < kBegin * p.g.size() / kRows; ++i) other.g[i] = 1.3f * p.g[i] - 0.2f;
    for (int64_t i = 0; i < kBegin * p.shape.width; ++i) other.mixed.set(i, 3 - p.mixed[i]);
    const Numbers changed = computed(other).out;
    const auto from = static_cast<int64_t>(all.size()) / kRows * kBegin;
    EXPECT_TRUE(std::equal(all.begin() + from, all.end(), changed.begin() + from));
  }
}

// For every row: other values of all later rows, and other documents there, leave its bits. Odd sizes, two
// documents, with and without operands in bf16.
TEST(Recurrence, LeavesEveryRowToItsPast) {
  constexpr int64_t kRows = 32;
  for (const Rule rule : kRules) {
    for (const auto& [keys, values] : {std::pair<int64_t, int64_t>{6, 10}, {5, 6}, {17, 33}}) {
      for (const int64_t chunk : {16, 20, 64}) {
        for (const auto& [dtype, pairs] :
             {std::pair{DType::kF32, false}, {DType::kBF16, false}, {DType::kBF16, true}}) {
          Problem p = problem_of(rule,
                                 {.rows = kRows,
                                  .key_heads = rule == Rule::kChannel ? 6 : 2,
                                  .value_heads = 6,
                                  .key_dim = keys,
                                  .value_dim = values,
                                  .chunk = chunk},
                                 0.3, 0, 7, dtype);
          for (int32_t row = 0; row < kRows; ++row) p.positions.push_back(row < 13 ? row : row - 13);
          const int64_t width = 6 * values;
          const Numbers all = outputs(p, pairs);
          for (int64_t t = 0; t + 1 < kRows; ++t) {
            Problem other = p;
            const auto change = [&](std::vector<float>& of) {
              for (auto i = static_cast<size_t>(t + 1) * of.size() / kRows; i < of.size(); ++i)
                of[i] = 1.7f * of[i] - 0.1f;
            };
            change(other.g);
            change(other.beta);
            for (int64_t i = (t + 1) * p.shape.width; i < p.mixed.size(); ++i)
              other.mixed.set(i, 3 - p.mixed[i]);
            for (int64_t row = t + 1; row < kRows; ++row)
              other.positions[static_cast<size_t>(row)] = static_cast<int32_t>((row + t) % 3);
            const Numbers found = outputs(other, pairs);
            EXPECT_FALSE(std::equal(all.begin(), all.end(), found.begin()));
            ASSERT_TRUE(std::equal(all.begin(), all.begin() + (t + 1) * width, found.begin()))
                << "row " << t << ", K " << keys << ", V " << values << ", chunks of " << chunk;
          }
        }
      }
    }
  }
}

// One range is the same as two with their maps between them, forward and backward.
TEST(Recurrence, OfPiecesIsJoinedByTheirMaps) {
  for (const Rule rule : kRules) {
    for (const bool documents : {false, true}) {
      Sizes n = sizes(rule, 120, 32);
      n.ranges = 1;
      Problem whole = problem_of(rule, n, 0.1);
      for (int32_t row = 0; row < 120; ++row)
        whole.positions.push_back(documents && row >= 50 ? row - 50 : row);
      Problem p = whole;
      p.shape.ranges = 4;
      p.shape.rows = 30;
      const RecurrencePlan plan = plan_recurrence(p.shape, device_of(1));
      const int64_t k = n.key_dim, states = p.states();
      const RecurrenceMaps maps{.sequences = 1,
                                .ranges = 4,
                                .heads = n.value_heads,
                                .key_dim = k,
                                .value_dim = n.value_dim,
                                .delta = p.shape.delta};
      Array map(DType::kF32, 4 * n.value_heads * ((p.shape.delta ? k * k : 1) + k * n.value_dim));
      Array before(DType::kF32, states), dbefore(DType::kF32, states), dlast(DType::kF32, states);
      Array scratch = testing::scratch_of(std::max(plan.map_bytes, plan.state_grad_bytes));
      recurrence_map(plan, map.f32(), p.inputs(), scratch.data());
      compose_maps(maps, before.f32(), map.f32());
      recurrence_state_gradient(plan, dbefore.f32(), p.dout.data(), p.inputs(), scratch.data());
      compose_state_gradients(maps, dlast.f32(), map.f32(), dbefore.f32());
      p.before.assign(before.f32(), before.f32() + states);
      p.dlast.assign(dlast.f32(), dlast.f32() + states);
      const Results wanted = computed(whole);
      Results found = computed(p);
      p.before.clear();  // their gradients are not those of the whole
      expect_close(p, found, wanted, 1e-5);
    }
  }
}

// A prompt by chunks, then row by row, leaves the state and outputs of all rows together.
TEST(Recurrence, GoesOnWithACache) {
  for (const Rule rule : kRules) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Sizes n = sizes(rule, 45, 16);
      n.ranges = 1;
      const Problem p = problem_of(rule, n, 0.4, 0, 9, dtype);
      const Results wanted = expected(p);
      constexpr int32_t kSlot = 1;
      Array cache = Array::random(DType::kF32, 3 * p.states(), 4);  // other entries stay
      const Array cached_before = cache;
      Numbers out;
      int32_t position = 0;
      const auto advance = [&](int64_t rows, int32_t count) {
        Problem part = rows_of(p, position, std::min<int64_t>(rows, 45 - position));
        part.shape.rows = rows;  // rows after the new ones are never used
        if (rows > part.mixed.size() / part.shape.width) return;
        const RecurrencePlan plan = plan_recurrence(part.shape, device_of(1));
        Array o(dtype, rows * n.value_heads * n.value_dim), scratch = testing::scratch_of(plan.forward_bytes);
        recurrence_cached(plan, o.data(),
                          {.states = cache.f32(), .position = &position, .slot = &kSlot, .count = &count},
                          part.inputs(), scratch.data());
        const Numbers values = o.values();
        const int64_t used = count * n.value_heads * n.value_dim;
        out.insert(out.end(), values.begin(), values.begin() + used);
        for (auto i = static_cast<size_t>(used); i < values.size(); ++i) EXPECT_EQ(values[i], 0);
        position += count;
      };
      advance(30, 23);
      advance(20, 0);
      advance(8, 8);
      while (position < 45) advance(1, 1);
      advance(1, 0);
      EXPECT_LT(distance(out, wanted.out), dtype == DType::kF32 ? 1e-5 : 3e-3);
      const Numbers all = cache.values(), others = cached_before.values();
      const auto states = static_cast<int64_t>(wanted.last.size());
      EXPECT_LT(distance({all.begin() + states, all.begin() + 2 * states}, wanted.last), 1e-5);
      EXPECT_TRUE(std::equal(all.begin(), all.begin() + states, others.begin()));
      EXPECT_TRUE(std::equal(all.begin() + 2 * states, all.end(), others.begin() + 2 * states));
    }
  }
}

TEST(Recurrence, OfEveryInstructionSetIsTheSameUpToRounding) {
  for (const Rule rule : kRules) {
    Problem p = problem_of(rule, sizes(rule, 60, 32), 0.5);
    add_states(p, 5);
    const Results wanted = expected(p);
    fixtures::on_every_target([&](int64_t) { expect_close(p, computed(p), wanted, 1e-5); });
  }
}

TEST(Recurrence, OfSkippedRowsSumsGradients) {
  const Sizes n = sizes(Rule::kSpace, 40, 32);
  const Problem p = problem_of(Rule::kSpace, n, 0.5);
  Array dskip = Array::random(DType::kF32, n.value_heads, 4);
  Numbers wanted = dskip.values();
  for (int64_t i = 0; i < p.dout.size(); ++i) {
    const int64_t row = i / (n.value_heads * n.value_dim), column = i % (n.value_heads * n.value_dim);
    wanted[static_cast<size_t>(column / n.value_dim)] += p.dout[i] * p.mixed[row * p.shape.width + column];
  }
  recurrence_skip_gradient(p.shape, dskip.f32(), p.dout.data(), p.mixed.data(), true);
  EXPECT_LT(distance(dskip.values(), wanted), 1e-6);
}

// Doubling the rows at most doubles the scratch.
TEST(Recurrence, NeedsScratchThatIsLinearInTheRows) {
  for (const Rule rule : kRules) {
    Sizes n = sizes(rule, 4096, 64);
    const int64_t once = plan_recurrence(shape_of(rule, n), device_of(1)).backward_bytes,
                  forward = plan_recurrence(shape_of(rule, n), device_of(1)).forward_bytes;
    n.rows *= 2;
    EXPECT_LT(plan_recurrence(shape_of(rule, n), device_of(1)).backward_bytes, 2 * once);
    EXPECT_EQ(plan_recurrence(shape_of(rule, n), device_of(1)).forward_bytes, forward);
  }
}

}  // namespace
}  // namespace strata::cpu
