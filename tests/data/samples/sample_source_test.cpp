#include "data/samples/sample_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/samples/corpus_double.h"

namespace strata::data {
namespace {

TEST(SampleSource, FileOrderWithoutShuffle) {
  const TemporaryFolder folder;
  const int64_t length = 8;
  const auto source = single_source(counting_corpus(folder, "a", 50),
                                    {.sequence_length = length, .shuffle = false, .pack = Pack::kStream});
  EXPECT_EQ(source.samples_per_epoch(), 6);
  EXPECT_EQ(source.total_samples(), Mixture::kUnbounded);
  OwnedBatch batch(12, length);
  BatchScratch scratch;
  EXPECT_EQ(source.fill(0, 12, batch.view(), scratch), 12 * length);
  for (int64_t row = 0; row < 12; ++row) {
    for (int64_t j = 0; j < length; ++j) {
      const auto at = static_cast<size_t>(row * length + j);
      ASSERT_EQ(batch.tokens[at], row % 6 * length + j);  // the second epoch starts over
      ASSERT_EQ(batch.targets[at], row % 6 * length + j + 1);
      ASSERT_EQ(batch.positions[at], j);
      ASSERT_EQ(batch.kv_begin[at], 0);
    }
  }
}

TEST(SampleSource, EveryWindowOncePerEpochInADifferentOrder) {
  const TemporaryFolder folder;
  for (const int64_t tokens : {9, 10, 17, 801, 1000}) {
    const auto corpus = counting_corpus(folder, "a", tokens);
    const auto source = single_source(corpus, {.sequence_length = 8, .seed = 5});
    const int64_t n = source.samples_per_epoch();
    ASSERT_EQ(n, (tokens - 1) / 8);
    std::vector<std::vector<int64_t>> orders;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<int64_t> seen;
      std::vector<int64_t> order;
      for (int64_t i = 0; i < n; ++i) {
        const auto place = source.place(epoch * n + i);
        EXPECT_EQ(place.epoch, epoch);
        seen.insert(place.window);
        order.push_back(place.window);
      }
      EXPECT_EQ(static_cast<int64_t>(seen.size()), n);
      EXPECT_EQ(*seen.rbegin(), n - 1);
      orders.push_back(order);
    }
    if (n > 50) {
      EXPECT_NE(orders[0], orders[1]);
      EXPECT_NE(orders[1], orders[2]);
      const auto other = single_source(corpus, {.sequence_length = 8, .seed = 6});
      int64_t same = 0;
      for (int64_t i = 0; i < n; ++i)
        same += other.place(i).window == orders[0][static_cast<size_t>(i)] ? 1 : 0;
      EXPECT_LT(same, n / 4);
    }
  }
}

TEST(SampleSource, AnySplitOfTheBatchYieldsTheSameRows) {
  const TemporaryFolder folder;
  const int64_t length = 5, rows = 23;
  const auto source =
      single_source(counting_corpus(folder, "a", 333), {.sequence_length = length, .seed = 9});
  OwnedBatch whole(rows, length), parts(rows, length);
  BatchScratch scratch;
  source.fill(100, rows, whole.view(), scratch);
  for (int64_t row = rows; row-- > 0;) {  // in another order too
    source.fill(100 + row, 1, row_of(parts.view(), source.shape(), row), scratch);
  }
  EXPECT_EQ(whole, parts);
}

TEST(SampleSource, DocumentsAreNeverCrossed) {
  const TemporaryFolder folder;
  // End-of-text is 0: documents of 3, 1, 5 tokens and an open one.
  const Path path = folder.write_values<uint16_t>("a.bin", {1, 2, 0, 0, 3, 4, 5, 6, 0, 7, 8});
  const auto corpus = open_token_corpus({path.string()}, {.vocab_size = 10, .end_of_text = 0});
  const auto source = single_source(corpus, {.sequence_length = 10, .shuffle = false});
  OwnedBatch batch(1, 10);
  BatchScratch scratch;
  EXPECT_EQ(source.fill(0, 1, batch.view(), scratch), 7);
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{1, 2, 0, 0, 3, 4, 5, 6, 0, 7}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{2, 0, -1, -1, 4, 5, 6, 0, -1, 8}));
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 1, 2, 0, 0, 1, 2, 3, 4, 0}));
  EXPECT_EQ(batch.kv_begin, (std::vector<int32_t>{0, 0, 0, 3, 4, 4, 4, 4, 4, 9}));
  // The same batch from a document table, if no token marks the end.
  folder.write_values<uint64_t>("a.documents", {3, 4, 9, 11});
  const auto tabled = single_source(open_token_corpus({path.string()}, {.vocab_size = 10}),
                                    {.sequence_length = 10, .shuffle = false});
  OwnedBatch again(1, 10);
  tabled.fill(0, 1, again.view(), scratch);
  EXPECT_EQ(batch, again);
}

TEST(SampleSource, WindowThatEndsWithItsDocument) {
  const TemporaryFolder folder;
  const Path path = folder.write_values<uint16_t>("a.bin", {1, 2, 3, 0, 5, 6, 7, 8, 9});
  const auto source = single_source(open_token_corpus({path.string()}, {.vocab_size = 10, .end_of_text = 0}),
                                    {.sequence_length = 4, .shuffle = false});
  OwnedBatch batch(2, 4);
  BatchScratch scratch;
  EXPECT_EQ(source.fill(0, 2, batch.view(), scratch), 7);
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{2, 3, 0, -1, 6, 7, 8, 9}));
  EXPECT_EQ(batch.kv_begin, std::vector<int32_t>(8, 0));
}

TEST(SampleSource, SkippedSamplesAreOmitted) {
  const TemporaryFolder folder;
  const auto corpus = counting_corpus(folder, "a", 401);
  const auto plain = single_source(corpus, {.sequence_length = 4, .seed = 3, .epochs = 2});
  const auto skipping =
      single_source(corpus, {.sequence_length = 4, .seed = 3, .epochs = 2, .skip = {{10, 20}, {150, 153}}});
  EXPECT_EQ(plain.total_samples(), 200);
  EXPECT_EQ(skipping.total_samples(), 187);
  int64_t trained = 0;
  for (int64_t global = 0; global < 200; ++global) {
    if ((global >= 10 && global < 20) || (global >= 150 && global < 153)) continue;
    EXPECT_EQ(skipping.place(trained).global_sample, global);
    EXPECT_EQ(skipping.place(trained).window, plain.place(global).window);
    ++trained;
  }
}

TEST(SampleSource, RowsPastTheEndArePadding) {
  const TemporaryFolder folder;
  const auto source =
      single_source(counting_corpus(folder, "a", 9), {.sequence_length = 4, .shuffle = false, .epochs = 1});
  EXPECT_EQ(source.total_samples(), 2);
  OwnedBatch batch(3, 4);
  BatchScratch scratch;
  EXPECT_EQ(source.fill(1, 3, batch.view(), scratch), 4);
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{5, 6, 7, 8, -1, -1, -1, -1, -1, -1, -1, -1}));
}

TEST(SampleSource, SeveralSourcesShareByWeight) {
  const TemporaryFolder folder;
  std::vector<SampleSourceSpec> specs;
  specs.push_back({"web", counting_corpus(folder, "a", 1001), 3, 0});
  specs.push_back({"math", counting_corpus(folder, "b", 101, 100000), 1, 2});
  const SampleSource source(specs, {.sequence_length = 10, .seed = 1});
  EXPECT_EQ(source.samples_per_epoch(1), 10);
  OwnedBatch batch(1, 10);
  BatchScratch scratch;
  std::vector<int> math_windows(10);
  for (int64_t i = 0; i < 400; ++i) {
    const auto place = source.place(i);
    source.fill(i, 1, batch.view(), scratch);
    EXPECT_EQ(batch.tokens[0], place.window * 10 + (place.source == 1 ? 100000 : 0));
    if (place.source == 1) ++math_windows[static_cast<size_t>(place.window)];
  }
  EXPECT_EQ(math_windows, std::vector<int>(10, 2));  // two epochs, then only the other source
}

TEST(SampleSource, BudgetsEndASource) {
  const TemporaryFolder folder;
  std::vector<SampleSourceSpec> specs;
  specs.push_back({"web", counting_corpus(folder, "a", 1001), 3, 0, 0});
  specs.push_back({"math", counting_corpus(folder, "b", 1001), 1, 0, 259});    // 25 windows of 10
  specs.push_back({"tiny", counting_corpus(folder, "c", 101), 1, 3, 100000});  // max_epochs comes first
  const SampleSource source(specs, {.sequence_length = 10, .seed = 1});
  std::vector<int64_t> given(3);
  for (int64_t i = 0; i < 400; ++i) {
    ++given[static_cast<size_t>(source.place(i).source)];
    // The rows follow the plan.
    if (i % 37 == 0) {
      for (size_t k = 0; k < 3; ++k) {
        const auto number = static_cast<int64_t>(k);
        EXPECT_DOUBLE_EQ(
            source.epochs(number, i + 1),
            static_cast<double>(given[k]) / static_cast<double>(source.samples_per_epoch(number)));
        EXPECT_DOUBLE_EQ(source.share(number, i + 1),
                         static_cast<double>(given[k]) / static_cast<double>(i + 1));
      }
    }
  }
  EXPECT_EQ(given, (std::vector<int64_t>{345, 25, 30}));
  EXPECT_EQ(source.epochs(0, 0), 0.0);
  // All sources limited: the run ends with them.
  specs[0].max_tokens = 1000;
  EXPECT_EQ(SampleSource(specs, {.sequence_length = 10}).total_samples(), 155);
  // A budget below one window is one window.
  specs[1].max_tokens = 1;
  EXPECT_EQ(SampleSource(specs, {.sequence_length = 10}).total_samples(), 131);
}

TEST(SampleSource, BestFitKeepsDocumentsWhole) {
  const TemporaryFolder folder;
  const int64_t length = 16;
  // Each token is unique; documents of 1 to 40 tokens.
  std::vector<uint32_t> ids;
  std::vector<uint64_t> ends;
  for (uint64_t d = 0; d < 500; ++d) {
    for (uint64_t j = 0; j < 1 + d * 7 % 40; ++j) ids.push_back(static_cast<uint32_t>(ids.size()));
    ends.push_back(ids.size());
  }
  const Path path = folder.write_values("a.bin", ids);
  folder.write("a.json", R"({"dtype": "u32"})");
  folder.write_values("a.documents", ends);
  const auto source = single_source(open_token_corpus({path.string()}),
                                    {.sequence_length = length, .seed = 4, .pack = Pack::kBestFit});
  const int64_t rows = source.samples_per_epoch();
  OwnedBatch batch(rows, length);
  BatchScratch scratch;
  const int64_t counted = source.fill(0, rows, batch.view(), scratch);
  std::vector<int> seen(ids.size());
  int64_t targets = 0;
  for (size_t at = 0; at < batch.tokens.size(); ++at) {
    const auto j = static_cast<int32_t>(at % static_cast<size_t>(length));
    ASSERT_EQ(batch.positions[at], j - batch.kv_begin[at]);
    const auto token = static_cast<uint64_t>(batch.tokens[at]);
    if (batch.targets[at] >= 0) {
      ASSERT_EQ(batch.targets[at], batch.tokens[at] + 1);
      ASSERT_EQ(std::count(ends.begin(), ends.end(), token + 1), 0);  // never into the next document
      ++seen[token + 1];
      ++targets;
    }
    if (j > 0 && batch.kv_begin[at] == batch.kv_begin[at - 1]) {
      ASSERT_EQ(batch.tokens[at], batch.tokens[at - 1] + 1);
    }
  }
  EXPECT_EQ(targets, counted);
  // Every token is predicted once, but for the first of each document.
  std::vector<int> expected(ids.size(), 1);
  expected[0] = 0;
  for (size_t d = 0; d + 1 < ends.size(); ++d) expected[ends[d]] = 0;
  EXPECT_EQ(seen, expected);
  EXPECT_LT(source.padding(0), 0.05);
}

TEST(SampleSource, ErrorsAreConfigErrors) {
  const TemporaryFolder folder;
  const auto corpus = counting_corpus(folder, "a", 8);
  expect_error(ErrorKind::kConfig, {"train", "8 tokens", "9"},
               [&] { single_source(corpus, {.sequence_length = 8}); });
  expect_error(ErrorKind::kConfig, {"sequence_length"},
               [&] { single_source(corpus, {.sequence_length = 0}); });
  expect_error(ErrorKind::kConfig, {"source"}, [&] { SampleSource({}, {.sequence_length = 8}); });
  expect_error(ErrorKind::kConfig, {"weight"}, [&] {
    SampleSource({{"a", corpus, -1, 0}}, {.sequence_length = 2});
  });
  expect_error(ErrorKind::kConfig, {"data.phase", "2 weights for 1"}, [&] {
    single_source(corpus, {.sequence_length = 2, .phases = {{5, {1, 1}}}});
  });
}

}  // namespace
}  // namespace strata::data
