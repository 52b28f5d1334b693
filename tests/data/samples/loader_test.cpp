#include "data/samples/loader.h"

#include <gtest/gtest.h>

#include "data/samples/corpus_double.h"

namespace strata::data {
namespace {

OwnedBatch expected_batch(const SampleSource& source, int64_t first, int64_t sequences) {
  OwnedBatch batch(sequences, source.shape());
  BatchScratch scratch;
  source.fill(first, sequences, batch.view(), scratch);
  return batch;
}

void expect_same(const HostBatch& got, const SampleSource& source, int64_t first, int64_t sequences) {
  const OwnedBatch expected = expected_batch(source, first, sequences);
  EXPECT_EQ(got.first_sample, first);
  EXPECT_EQ(got.sequences, sequences);
  EXPECT_EQ(got[Column::kTokens], expected.tokens);
  EXPECT_EQ(got[Column::kTargets], expected.targets);
  EXPECT_EQ(got[Column::kPositions], expected.positions);
  EXPECT_EQ(got[Column::kKvBegin], expected.kv_begin);
  EXPECT_EQ(got[Column::kEncoderTokens], expected.encoder_tokens);
  EXPECT_EQ(got[Column::kEncoderKvBegin], expected.encoder_kv_begin);
  EXPECT_EQ(got[Column::kCrossKvBegin], expected.cross_kv_begin);
}

TEST(Loader, ReturnsTheRowsOfTheSource) {
  const TemporaryFolder folder;
  const auto source = single_source(counting_corpus(folder, "a", 1000), {.sequence_length = 8, .seed = 5});
  Loader loader(source, {.max_sequences = 6});
  for (int64_t step = 0; step < 60; ++step) expect_same(loader.next(step * 4, 4), source, step * 4, 4);
  // Another position, another size, the same batch twice.
  for (const auto& [first, sequences] : std::vector<std::pair<int64_t, int64_t>>{
           {7, 6}, {7, 6}, {13, 6}, {19, 2}, {21, 2}, {1000000, 1}, {0, 3}, {3, 3}, {6, 3}, {6, 1}}) {
    expect_same(loader.next(first, sequences), source, first, sequences);
  }
  EXPECT_GE(loader.wait_seconds(), 0);
}

TEST(Loader, StrideOfRanks) {
  const TemporaryFolder folder;
  const auto source = single_source(counting_corpus(folder, "a", 1000), {.sequence_length = 8, .seed = 5});
  Loader loader(source, {.max_sequences = 2, .stride = 8});
  for (int64_t step = 0; step < 40; ++step)
    expect_same(loader.next(step * 8 + 2, 2), source, step * 8 + 2, 2);
}

TEST(Loader, BuffersAreReused) {
  const TemporaryFolder folder;
  const auto source = single_source(counting_corpus(folder, "a", 1000), {.sequence_length = 8});
  Loader loader(source, {.max_sequences = 4, .depth = 3});
  std::vector<const int32_t*> seen;
  for (int64_t step = 0; step < 24; ++step) {
    const int32_t* data = loader.next(step * 4, 4)[Column::kTokens].data();
    if (step >= 4) {
      EXPECT_EQ(data, seen[static_cast<size_t>(step - 4)]);
    }
    seen.push_back(data);
  }
}

TEST(Loader, ErrorsReachTheCallerAndTheNextCallContinues) {
  const TemporaryFolder folder;
  std::vector<uint16_t> ids(161, 3);
  ids[100] = 900;  // window 12 of 20
  const Path path = folder.write_values("a.bin", ids);
  const auto source = single_source(open_token_corpus({path.string()}, {.vocab_size = 500}),
                                    {.sequence_length = 8, .shuffle = false});
  Loader loader(source, {.max_sequences = 1});
  for (int round = 0; round < 3; ++round) {
    for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(loader.next(i, 1)[Column::kTokens][0], 3);
    expect_error(ErrorKind::kData, {"a.bin", "token 100", "900"}, [&] { loader.next(12, 1); });
    expect_error(ErrorKind::kData, {"a.bin", "token 100", "900"}, [&] { loader.next(12, 1); });
    EXPECT_EQ(loader.next(13, 1)[Column::kTokens][0], 3);
  }
}

TEST(Loader, StopsWhenDestroyed) {
  const TemporaryFolder folder;
  const auto source = single_source(counting_corpus(folder, "a", 1000), {.sequence_length = 8});
  for (int i = 0; i < 20; ++i) {
    Loader loader(source, {.max_sequences = 4});
    if (i % 2 == 0) loader.next(i, 4);
  }
}

}  // namespace
}  // namespace strata::data
