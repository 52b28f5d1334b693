// Choice of keys, attention to them and the indexer's loss against their formulas in fp64 and PyTorch, and what must
// not change their bits.
#include "kernels/cpu/sparse_attention.h"

#include <fmt/format.h>

#include <limits>

#include "fixtures/every_target.h"
#include "kernels/cpu/sparse_testing.h"

namespace strata::cpu {
namespace {

using namespace sparse_testing;

std::vector<Sizes> sizes_of_sparse() {
  return {
      {},
      {.document = 31},
      {.count = 90},  // more than there are keys
      {.sequences = 3, .rows = 1, .count = 2},
      // Several tiles of keys and rows, one head of keys, whole vectors.
      {.sequences = 1,
       .rows = 270,
       .count = 40,
       .heads = 3,
       .kv_heads = 1,
       .head_dim = 32,
       .value_dim = 48,
       .index_heads = 5,
       .index_size = 16,
       .document = 140},
      // A group of more heads than a task has rows.
      {.sequences = 1, .rows = 20, .count = 7, .heads = 160, .kv_heads = 1, .head_dim = 3, .value_dim = 2},
      {.sequences = 2,
       .rows = 40,
       .count = 5,
       .heads = 1,
       .kv_heads = 1,
       .head_dim = 1,
       .value_dim = 1,
       .index_heads = 1,
       .index_size = 1}};
}

void expect_attention(const Problem& p, const AttendedArrays& found, const std::vector<int32_t>& chosen) {
  const Attended wanted = expected_attention(p, &chosen, &found.out);
  testing::expect_near(found.out, wanted.out, 1e-5);
  for (int64_t i = 0; i < found.lse.size(); ++i) {
    const double lse = wanted.lse[static_cast<size_t>(i)];
    ASSERT_TRUE(found.lse[i] == lse || std::abs(found.lse[i] - lse) < 1e-5 * (1 + std::abs(lse))) << i;
  }
  testing::expect_near(found.mass, wanted.mass, 1e-5);
  testing::expect_near(found.dq, wanted.dq, 1e-5);
  testing::expect_near(found.dkv, wanted.dkv, 2e-5);
}

TEST(SparseAttention, ChoosesAndAttendsByItsFormulas) {
  for (const Sizes& n : sizes_of_sparse()) {
    for (const DType dtype : testing::kActivationTypes) {
      SCOPED_TRACE(fmt::format("{} rows, {} chosen, {}", n.rows, n.count, name_of(dtype)));
      const Problem p = problem_of(n, dtype);
      const std::vector<int32_t> chosen = expected_choice(p);
      EXPECT_EQ(chosen_keys(p), chosen);
      expect_attention(p, attention_of(p, chosen), chosen);
    }
  }
}

TEST(SparseAttention, OfAllKeysIsDense) {
  const Problem p = problem_of({.count = 70, .document = 31});
  const AttendedArrays found = attention_of(p, chosen_keys(p));
  const Attended dense = expected_attention(p, nullptr);
  testing::expect_near(found.out, dense.out, 1e-5);
  testing::expect_near(found.dq, dense.dq, 1e-5);
  testing::expect_near(found.dkv, dense.dkv, 1e-5);
}

// Lists with gaps, and rows without any key.
TEST(SparseAttention, LeavesOutRowsWithoutKeys) {
  const Problem p = problem_of({});
  std::vector<int32_t> chosen = expected_choice(p);
  for (int64_t row = 0; row < p.n.keys(); row += 3)
    std::fill_n(chosen.begin() + row * p.n.count + row % 4, p.n.count - row % 4, -1);
  const AttendedArrays found = attention_of(p, chosen);
  expect_attention(p, found, chosen);
  EXPECT_EQ(found.lse[0], -std::numeric_limits<double>::infinity());
}

// Masses of the main attention, by row and key.
std::function<double(int64_t, size_t)> masses_of(const Problem& p, const Array& mass) {
  return [&p, &mass](int64_t row, size_t i) { return mass[row * p.n.count + static_cast<int64_t>(i)]; };
}
std::function<double(int64_t, size_t)> masses_of_lse(const Problem& p, const Array& lse) {
  return [&p, &lse](int64_t row, size_t i) {
    const Sizes& n = p.n;
    const int64_t sequence = row / n.rows;
    const int64_t key = sequence * n.rows + p.begin(row) + static_cast<int64_t>(i);
    double sum = 0;
    for (int64_t head = 0; head < n.heads; ++head) {
      double dot = 0;
      for (int64_t c = 0; c < n.head_dim; ++c)
        dot += p.q[(row * n.heads + head) * n.head_dim + c] *
               p.kv[key * p.kv_width() + head / (n.heads / n.kv_heads) * n.head_dim + c];
      sum += std::exp(static_cast<double>(p.scale) * dot -
                      lse[(sequence * n.heads + head) * n.rows + row % n.rows]);
    }
    return sum;
  };
}

void expect_loss(const LossArrays& found, const Losses& wanted) {
  EXPECT_NEAR(found.loss, wanted.loss, 1e-5 * (1 + std::abs(wanted.loss)));
  testing::expect_near(found.dq, wanted.dq, 1e-5);
  testing::expect_near(found.dk, wanted.dk, 2e-5);
  testing::expect_near(found.dweights, wanted.dweights, 1e-5);
}

TEST(IndexerLoss, IsItsFormula) {
  for (const Sizes& n : sizes_of_sparse()) {
    for (const DType dtype : testing::kActivationTypes) {
      SCOPED_TRACE(fmt::format("{} rows, {} chosen, {}", n.rows, n.count, name_of(dtype)));
      const Problem p = problem_of(n, dtype);
      const std::vector<int32_t> chosen = chosen_keys(p);
      Array mass = attention_of(p, chosen).mass;
      for (int64_t i = 0; i < mass.size(); i += 4) mass.set(i, 0);  // as if it underflowed
      expect_loss(loss_of(p, &chosen, mass, 3), expected_loss(p, &chosen, masses_of(p, mass), 3));
      const Array lse = f32_array(expected_attention(p, nullptr).lse);
      expect_loss(loss_of(p, nullptr, lse, 3), expected_loss(p, nullptr, masses_of_lse(p, lse), 3));
    }
  }
}

// Two chunks of a sequence's rows, as a rank has them, against all keys.
TEST(SparseAttention, OfTwoChunksIsThatOfTheirRows) {
  const Problem whole = problem_of({.sequences = 1, .rows = 80, .count = 9, .document = 33});
  const std::vector<int32_t> all = chosen_keys(whole);
  const Array lse = f32_array(expected_attention(whole, nullptr).lse);
  constexpr int64_t kPiece = 10, kRank = 2, kRanks = 4;
  const int32_t starts[] = {kRank * kPiece, (2 * kRanks - 1 - kRank) * kPiece};
  const auto rows_of = [&](const Array& of) {
    const int64_t width = of.size() / whole.n.rows;
    Array to(of.dtype(), 2 * kPiece * width);
    for (int64_t i = 0; i < to.size(); ++i)
      to.set(i, of[(starts[i / width / kPiece] + i / width % kPiece) * width + i % width]);
    return to;
  };
  const Array q = rows_of(whole.index_q), weights = rows_of(whole.weights), main_q = rows_of(whole.q);
  std::vector<int32_t> begin, wanted, targets;
  Array own_lse(DType::kF32, whole.n.heads * 2 * kPiece);
  for (int64_t i = 0; i < 2 * kPiece; ++i) {
    const int64_t row = starts[i / kPiece] + i % kPiece;
    begin.push_back(whole.kv_begin[static_cast<size_t>(row)]);
    targets.push_back(whole.targets[static_cast<size_t>(row)]);
    wanted.insert(wanted.end(), all.begin() + row * whole.n.count, all.begin() + (row + 1) * whole.n.count);
    for (int64_t head = 0; head < whole.n.heads; ++head)
      own_lse.set(head * 2 * kPiece + i, lse[head * whole.n.rows + row]);
  }
  IndexerLossShape shape = whole.loss(true);
  shape.rows.q_len = 2 * kPiece;
  shape.rows.q_pieces = 2;
  const IndexerInputs in{.q = q.data(),
                         .k = whole.index_k.data(),
                         .weights = weights.f32(),
                         .kv_begin = begin.data(),
                         .q_start = starts};
  const KeySelectionPlan plan = plan_key_selection(shape.rows, device_of(1));
  std::vector<int32_t> found(wanted.size());
  Array scratch = testing::scratch_of(plan.bytes);
  select_keys(plan, found.data(), in, scratch.data());
  EXPECT_EQ(found, wanted);

  const IndexerLossPlan loss = plan_indexer_loss(shape, device_of(1));
  Array more = testing::scratch_of(loss.backward_bytes), dq(DType::kF32, q.size()),
        dk(DType::kF32, whole.index_k.size()), dweights(DType::kF32, weights.size());
  indexer_loss_backward(loss, {.dq = dq.data(), .dk = dk.data(), .dweights = dweights.f32()}, 1,
                        {.rows = in,
                         .targets = targets.data(),
                         .main_q = main_q.data(),
                         .main_k = whole.kv.data(),
                         .main_lse = own_lse.f32()},
                        more.data());
  const Losses of_all = expected_loss(whole, nullptr, masses_of_lse(whole, lse));
  testing::expect_near(dq, rows_of(f32_array(of_all.dq)).values(), 1e-5);
  testing::expect_near(dweights, rows_of(f32_array(of_all.dweights)).values(), 1e-5);
  // The keys' gradient is a partial sum: that of the whole without targets elsewhere.
  Problem only = whole;
  for (int64_t row = 0; row < whole.n.rows; ++row) {
    const bool own = row / kPiece == kRank || row / kPiece == 2 * kRanks - 1 - kRank;
    if (!own) only.targets[static_cast<size_t>(row)] = -1;
  }
  testing::expect_near(dk, expected_loss(only, nullptr, masses_of_lse(only, lse)).dk, 1e-5);
}

// A cache: queries after keys that are already there, in another entry than their sequence's number.
TEST(KeySelection, ReadsTheEntryOfASlot) {
  const Problem whole = problem_of({.sequences = 3, .rows = 50, .count = 6});
  const std::vector<int32_t> all = chosen_keys(whole);
  IndexerShape shape = whole.indexer();
  shape.sequences = 2;
  shape.q_len = 1;
  const int32_t slots[] = {2, 0}, positions[] = {49, 30};
  const int64_t width = whole.n.index_heads * whole.n.index_size;
  Array q(DType::kF32, 2 * width), weights(DType::kF32, 2 * whole.n.index_heads);
  std::vector<int32_t> wanted;
  for (int64_t s = 0; s < 2; ++s) {
    const int64_t row = slots[s] * whole.n.rows + positions[s];
    for (int64_t c = 0; c < width; ++c) q.set(s * width + c, whole.index_q[row * width + c]);
    for (int64_t h = 0; h < whole.n.index_heads; ++h)
      weights.set(s * whole.n.index_heads + h, whole.weights[row * whole.n.index_heads + h]);
    wanted.insert(wanted.end(), all.begin() + row * 6, all.begin() + (row + 1) * 6);
  }
  const KeySelectionPlan plan = plan_key_selection(shape, device_of(1));
  std::vector<int32_t> found(wanted.size());
  Array scratch = testing::scratch_of(plan.bytes);
  select_keys(plan, found.data(),
              {.q = q.data(),
               .k = whole.index_k.data(),
               .weights = weights.f32(),
               .q_start = positions,
               .kv_slot = slots},
              scratch.data());
  EXPECT_EQ(found, wanted);
}

// Of equal scores the first; negative weights make -0 of what relu leaves nothing of.
TEST(KeySelection, BreaksTiesByPlace) {
  for (const int64_t count : {1, 5, 16, 33, 60}) {
    SCOPED_TRACE(count);
    Problem p = problem_of({.sequences = 1, .rows = 300, .count = count, .index_heads = 2, .index_size = 8});
    const int64_t size = p.n.index_size;
    for (int64_t key = 0; key < p.n.rows; ++key) {
      for (int64_t c = 0; c < size; ++c) p.index_k.set(key * size + c, p.index_k[key / 7 % 3 * 7 * size + c]);
    }
    for (int64_t i = 0; i < p.weights.size(); ++i) p.weights.set(i, i % 3 == 0 ? -1.0 : 0.5);
    EXPECT_EQ(chosen_keys(p), expected_choice(p));
  }
}

// NaN is less than every score; infinities are not special.
TEST(KeySelection, ChoosesNumbersBeforeNaN) {
  Problem p = problem_of({.sequences = 1, .rows = 64, .count = 4, .index_heads = 1, .index_size = 1});
  for (int64_t i = 0; i < 64; ++i) {
    p.index_q.set(i, 1);
    p.weights.set(i, 1);
    p.index_k.set(i, i % 2 == 0 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(i % 10));
  }
  p.index_k.set(20, std::numeric_limits<double>::infinity());
  const std::vector<int32_t> chosen = chosen_keys(p);
  EXPECT_EQ(std::vector(chosen.end() - 4, chosen.end()), (std::vector<int32_t>{9, 19, 20, 29}));
  // Five numbers among nine keys, four among eight: then NaN.
  EXPECT_EQ(std::vector(chosen.begin() + 7 * 4, chosen.begin() + 8 * 4), (std::vector<int32_t>{1, 3, 5, 7}));
  EXPECT_EQ(std::vector(chosen.begin() + 5 * 4, chosen.begin() + 6 * 4), (std::vector<int32_t>{0, 1, 3, 5}));
  for (int64_t i = 0; i < 64; ++i) p.index_k.set(i, std::numeric_limits<double>::quiet_NaN());
  const std::vector<int32_t> first = chosen_keys(p);
  EXPECT_EQ(std::vector(first.end() - 4, first.end()), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(SparseAttention, AgreesOnAllInstructionSets) {
  const Sizes n{.rows = 150, .count = 19, .document = 61};
  for (const DType dtype : testing::kActivationTypes) {
    const Problem p = problem_of(n, dtype);
    const std::vector<int32_t> chosen = expected_choice(p);
    const Array lse = f32_array(expected_attention(p, nullptr).lse);
    const Array mass = f32_array(expected_attention(p, &chosen).mass);
    const Losses of_chosen = expected_loss(p, &chosen, masses_of(p, mass)),
                 of_all = expected_loss(p, nullptr, masses_of_lse(p, lse));
    fixtures::on_every_target([&](int64_t) {
      EXPECT_EQ(chosen_keys(p), chosen);
      expect_attention(p, attention_of(p, chosen), chosen);
      expect_loss(loss_of(p, &chosen, mass), of_chosen);
      expect_loss(loss_of(p, nullptr, lse), of_all);
    });
  }
}

TEST(SparseAttention, SameBitsForAnyThreads) {
  const Problem p = problem_of({.rows = 300, .count = 30, .document = 120}, DType::kBF16);
  const Array lse = f32_array(expected_attention(p, nullptr).lse);
  testing::expect_same_bits([&] {
    const std::vector<int32_t> chosen = chosen_keys(p, 3);
    const AttendedArrays attended = attention_of(p, chosen, 3);
    const LossArrays of_chosen = loss_of(p, &chosen, attended.mass, 1, 3),
                     of_all = loss_of(p, nullptr, lse, 1, 3);
    std::vector<std::byte> bytes;
    const auto append = [&](const void* from, size_t n) {
      bytes.insert(bytes.end(), static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + n);
    };
    append(chosen.data(), chosen.size() * sizeof(int32_t));
    append(&of_chosen.loss, sizeof(double));
    append(&of_all.loss, sizeof(double));
    for (const Array* of :
         {&attended.out, &attended.lse, &attended.mass, &attended.dq, &attended.dkv, &of_chosen.dq,
          &of_chosen.dk, &of_chosen.dweights, &of_all.dq, &of_all.dk, &of_all.dweights})
      append(of->data(), of->bytes().size());
    return bytes;
  });
}

// NaN in one row stays in that row's results, and in the gradients of the keys that it chose.
TEST(SparseAttention, KeepsNaNToItsRow) {
  Problem p = problem_of({.sequences = 1});
  const std::vector<int32_t> chosen = chosen_keys(p);
  const AttendedArrays before = attention_of(p, chosen);
  constexpr int64_t kRow = 40;
  const int64_t width = p.n.heads * p.n.head_dim, values = p.n.heads * p.n.value_dim;
  for (int64_t c = 0; c < width; ++c) p.q.set(kRow * width + c, std::numeric_limits<double>::quiet_NaN());
  const AttendedArrays after = attention_of(p, chosen);
  for (int64_t i = 0; i < after.out.size(); ++i) {
    if (i / values == kRow) {
      EXPECT_TRUE(std::isnan(after.out[i]));
    } else {
      EXPECT_EQ(after.out[i], before.out[i]);
    }
  }
}

// tools/golden/sparse_attention.py
TEST(SparseAttention, IsThatOfPyTorch) {
  Problem p{.n = {.sequences = 1,
                  .rows = 20,
                  .count = 6,
                  .heads = 2,
                  .kv_heads = 2,
                  .head_dim = 5,
                  .value_dim = 3,
                  .index_heads = 3,
                  .index_size = 4,
                  .document = 13}};
  p.scale = 0.6f;
  p.index_scale = 0.5f;
  p.coefficient = 1.5;
  const auto number = [](int stream, int64_t i, double shift = 0) {
    return shift + std::sin(0.731 * static_cast<double>(i) + 1.3 * stream);
  };
  const auto filled = [&](int stream, int64_t n, double shift = 0) {
    Array to(DType::kF32, n);
    for (int64_t i = 0; i < n; ++i) to.set(i, number(stream, i, shift));
    return to;
  };
  p.index_q = filled(1, 20 * 12);
  p.index_k = Array(DType::kF32, 20 * 4);
  for (int64_t i = 0; i < 80; ++i) p.index_k.set(i, number(2, i / 8 * 8 + i % 4));  // two equal keys each
  p.weights = filled(3, 20 * 3, 0.4);
  p.q = filled(4, 20 * 10);
  p.kv = Array(DType::kF32, 20 * 16);
  for (int64_t i = 0; i < 20 * 16; ++i)
    p.kv.set(i, i % 16 < 10 ? number(5, i / 16 * 10 + i % 16) : number(6, i / 16 * 6 + i % 16 - 10));
  p.dout = filled(7, 20 * 6);
  for (int32_t row = 0; row < 20; ++row) {
    p.kv_begin.push_back(row >= 13 ? 13 : 0);
    p.targets.push_back(row % 5 == 3 ? -1 : 0);
  }
  const auto total = [](const Numbers& of) {
    double sum = 0;
    for (size_t i = 0; i < of.size(); ++i) sum += of[i] * std::cos(0.37 * static_cast<double>(i));
    return sum;
  };
  const auto part = [](const Array& kv, int64_t begin, int64_t end) {
    Numbers to;
    for (int64_t i = 0; i < kv.size(); ++i)
      if (i % 16 >= begin && i % 16 < end) to.push_back(kv[i]);
    return to;
  };
  const std::vector<int32_t> chosen = chosen_keys(p);
  const auto of_row = [&](int64_t row) {
    return std::vector(chosen.begin() + row * 6, chosen.begin() + (row + 1) * 6);
  };
  EXPECT_EQ(of_row(7), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(of_row(12), (std::vector<int32_t>{0, 2, 3, 4, 5, 12}));
  EXPECT_EQ(of_row(19), (std::vector<int32_t>{13, 14, 16, 17, 18, 19}));
  const AttendedArrays found = attention_of(p, chosen);
  Numbers mass;
  for (int64_t i = 0; i < found.mass.size(); ++i)
    if (chosen[static_cast<size_t>(i)] >= 0) mass.push_back(found.mass[i]);
  const double wanted[] = {-1.31790322, 4.05392083, 2.11735493, -0.357029323, 0.447609879};
  const double sums[] = {total(found.out.values()), total(mass), total(found.dq.values()),
                         total(part(found.dkv, 0, 10)), total(part(found.dkv, 10, 16))};
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(sums[i], wanted[i], 1e-5) << "sum " << i;

  const auto expect_sums = [&](const LossArrays& loss, const Numbers& of_torch) {
    EXPECT_NEAR(loss.loss, of_torch[0], 1e-5);
    EXPECT_NEAR(total(loss.dq.values()), of_torch[1], 1e-5);
    EXPECT_NEAR(total(loss.dk.values()), of_torch[2], 1e-5);
    EXPECT_NEAR(total(loss.dweights.values()), of_torch[3], 1e-5);
  };
  {
    SCOPED_TRACE("over chosen keys");
    expect_sums(loss_of(p, &chosen, found.mass), {5.05990605, -0.0564189764, 1.03120875, -0.161656937});
  }
  SCOPED_TRACE("over all keys");
  // Dense attention, as a choice of all keys.
  Problem all = p;
  all.n.count = 20;
  expect_sums(loss_of(p, nullptr, attention_of(all, chosen_keys(all)).lse),
              {6.10370587, -0.690304559, 2.19553278, 0.277704191});
}

}  // namespace
}  // namespace strata::cpu
