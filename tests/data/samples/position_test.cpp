// A run whose batches, lengths, order or mixture change on the way trains once on every window of an epoch.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/random.h"
#include "data/samples/corpus_double.h"

namespace strata::data {
namespace {

constexpr uint32_t kSecond = 100000;  // where the ids of the second source begin

// The data of a run: the position that a checkpoint stores, and how often each token was trained on.
class Data {
 public:
  Data(std::vector<SampleSourceSpec> specs, SampleOptions options)
      : specs_(std::move(specs)), source_(specs_, std::move(options)) {}

  const SampleSource& source() const { return source_; }
  int64_t next_sample() const { return next_; }
  std::vector<SourcePosition> positions() const { return source_.positions(next_); }
  int64_t times(uint32_t token) const {
    const auto found = times_.find(static_cast<int32_t>(token));
    return found == times_.end() ? 0 : found->second;
  }

  void train(int64_t samples) {
    const int64_t first = source_.skip().trained_before(next_);
    OwnedBatch batch(samples, source_.shape());
    BatchScratch scratch;
    const int64_t counted = source_.fill(first, samples, batch.view(), scratch);
    int64_t targets = 0;
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      if (batch.targets[i] < 0) continue;
      ++targets;
      ++times_[batch.tokens[i]];
      ASSERT_EQ(batch.targets[i], batch.tokens[i] + 1);
      // A position attends to the text before it.
      const auto row = static_cast<int64_t>(i) / source_.shape().tokens * source_.shape().tokens;
      const int64_t begin = row + batch.kv_begin[i];
      ASSERT_EQ(batch.tokens[static_cast<size_t>(begin)],
                batch.tokens[i] - (static_cast<int64_t>(i) - begin));
      ASSERT_EQ(batch.positions[i], static_cast<int64_t>(i) - begin);
    }
    EXPECT_EQ(targets, counted);
    for (int64_t i = 0; i < samples; ++i)
      expect_text(source_.place(first + i), &batch.tokens[static_cast<size_t>(i * source_.shape().tokens)]);
    next_ = source_.skip().global_of(first + samples - 1) + 1;
  }

  // Changes the options as a resume does.
  void change(SampleOptions options) {
    const std::string order = source_.fingerprint();
    options.origin = source_.options().origin;
    SampleSource now(specs_, options);
    if (now.fingerprint() != order) {
      options.origin = {0, next_, source_.positions(next_)};
      now = SampleSource(specs_, options);
    }
    source_ = std::move(now);
  }

 private:
  // The text ranges of a row are the tokens of its places.
  void expect_text(const SampleSource::Place& at, const int32_t* row) const {
    std::vector<BestFitPlan::Piece> pieces;
    source_.text_of(at, pieces);
    const TokenCorpus& corpus = specs_[static_cast<size_t>(at.source)].corpus;
    std::vector<int32_t> ids;
    for (const BestFitPlan::Piece& piece : pieces) {
      ids.resize(static_cast<size_t>(piece.length));
      corpus.read(piece.begin, piece.length, ids.data());
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), row));
      row += piece.length;
    }
  }

  std::vector<SampleSourceSpec> specs_;
  SampleSource source_;
  int64_t next_ = 0;
  std::map<int32_t, int64_t> times_;
};

TEST(Position, StaysWithoutChanges) {
  const TemporaryFolder folder;
  const SampleOptions options{.sequence_length = 8, .seed = 3};
  Data data(
      {{"a", counting_corpus(folder, "a", 500), 1}, {"b", counting_corpus(folder, "b", 300, kSecond), 2}},
      options);
  data.train(40);
  data.change(options);
  EXPECT_EQ(data.source().options().origin.sample, 0);
  EXPECT_EQ(data.source().place(50).window,
            SampleSource({{"a", counting_corpus(folder, "a", 500), 1},
                          {"b", counting_corpus(folder, "b", 300, kSecond), 2}},
                         options)
                .place(50)
                .window);
}

// In file order the text continues from its position, in windows of the new length.
TEST(Position, AnotherLengthContinuesInTheText) {
  const TemporaryFolder folder;
  SampleOptions options{.sequence_length = 8, .shuffle = false, .pack = Pack::kStream};
  Data data({{"a", counting_corpus(folder, "a", 200), 1}}, options);
  data.train(5);
  options.sequence_length = 12;
  data.change(options);
  OwnedBatch batch(14, 12);
  BatchScratch scratch;
  data.source().fill(5, 14, batch.view(), scratch);
  for (size_t i = 0; i < 12 * 12; ++i) ASSERT_EQ(batch.tokens[i], 40 + static_cast<int32_t>(i));
  // 192 tokens were 24 windows of 8; the rest of the epoch ends within the 13th row, and the next begins.
  EXPECT_EQ(batch.tokens[12 * 12 + 7], 40 + 151);
  EXPECT_EQ(batch.targets[12 * 12 + 8], -1);
  EXPECT_EQ(batch.tokens[13 * 12], 0);
  EXPECT_EQ(data.source().positions(5 + 13)[0].epoch, 1);
  EXPECT_EQ(data.source().positions(5 + 13)[0].offset, 0);
}

// A range that is skipped from some step on removes nothing else.
TEST(Position, LaterSkipLosesNoOtherWindow) {
  const TemporaryFolder folder;
  SampleOptions options{.sequence_length = 8, .epochs = 1};
  Data data({{"a", counting_corpus(folder, "a", 801), 1}}, options);
  data.train(30);
  const SampleSource before = data.source();
  options.skip = {{10, 20}, {50, 60}};  // the first has been trained on already
  data.change(options);
  data.train(70 - 10);
  EXPECT_EQ(data.next_sample(), 100);
  EXPECT_EQ(data.source().skip().trained_before(100), data.source().total_samples());
  for (int64_t i = 0; i < 100; ++i) {
    const auto window = static_cast<uint32_t>(before.place(i).window);
    EXPECT_EQ(data.times(8 * window), i >= 50 && i < 60 ? 0 : 1) << i;
  }
}

TEST(Position, MoreEpochsContinueAtTheEnd) {
  const TemporaryFolder folder;
  SampleOptions options{.sequence_length = 8, .epochs = 1};
  Data data({{"a", counting_corpus(folder, "a", 81), 1}}, options);
  data.train(10);
  EXPECT_EQ(data.source().total_samples(), 10);
  options.epochs = 3;
  data.change(options);
  EXPECT_EQ(data.source().total_samples(), 30);
  data.train(20);
  for (uint32_t token = 0; token < 80; ++token) EXPECT_EQ(data.times(token), 3) << token;
}

TEST(Position, AnotherTextBeginsANewEpoch) {
  const TemporaryFolder folder;
  SampleOptions options{.sequence_length = 8};
  SampleSource before({{"a", counting_corpus(folder, "a", 81), 1}}, options);
  options.origin = {3, 4, before.positions(4)};
  const SampleSource after({{"a", counting_corpus(folder, "longer", 161), 1}}, options);
  EXPECT_EQ(after.positions(4)[0].epoch, 1);
  EXPECT_EQ(after.positions(24)[0].epoch, 2);
}

// Any changes, at any time.
TEST(Position, EveryTokenOncePerEpochAfterAnyChange) {
  const TemporaryFolder folder;
  const int64_t sizes[] = {997, 411};
  const std::vector<SampleSourceSpec> specs{{"a", counting_corpus(folder, "a", sizes[0]), 1},
                                            {"b", counting_corpus(folder, "b", sizes[1], kSecond), 1}};
  for (uint64_t trial = 0; trial < 40; ++trial) {
    RowDraws draws(11, static_cast<int64_t>(trial));
    SampleOptions options{.sequence_length = 8, .seed = trial, .pack = Pack::kStream};
    Data data(specs, options);
    int64_t longest = 8;
    for (int change = 0; change < 6; ++change) {
      const int64_t batches = 1 + draws.below(12), batch = 1 + draws.below(9);
      for (int64_t i = 0; i < batches; ++i) data.train(batch);
      if (draws.with_chance(0.6)) options.sequence_length = 2 + draws.below(29);
      if (draws.with_chance(0.3)) options.shuffle = !options.shuffle;
      if (draws.with_chance(0.4)) options.pack = static_cast<Pack>(draws.below(3));
      if (draws.with_chance(0.3)) options.phases = {{0, {1.0 + static_cast<double>(draws.below(3)), 1.0}}};
      longest = std::max(longest, options.sequence_length);
      data.change(options);
    }
    // To the end of the epoch that the second source is in, and of the first one's.
    for (int which = 0; which < 2; ++which) {
      const auto k = static_cast<size_t>(which);
      const int64_t epoch = data.positions()[k].epoch;
      while (data.positions()[k].epoch == epoch) data.train(1);
      ASSERT_EQ(data.positions()[k].offset, 0);
      // The last tokens that fill a whole window depend on the length.
      const int64_t compared = sizes[k] - 2 * longest - 2;
      for (int64_t token = 0; token < compared; ++token) {
        const int64_t times = data.times(static_cast<uint32_t>(token) + (which == 1 ? kSecond : 0));
        // Best-fit packing omits the last token of each of its ranges of a document.
        ASSERT_EQ(times, epoch + 1) << "trial " << trial << " source " << which << " token " << token;
      }
    }
  }
}

}  // namespace
}  // namespace strata::data
