#include "data/samples/objective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "data/samples/corpus_double.h"
#include "data/samples/eval_windows.h"
#include "data/samples/loader.h"

namespace strata::data {
namespace {

constexpr int32_t kMask = 4;            // as in the golden tokenizer
constexpr int32_t kSentinel = 1000000;  // <extra_id_0>; the others below, as T5 has them
constexpr int32_t kEnd = 2000001, kStart = 2000000;

const nlohmann::json& golden() {
  static const auto json =
      parse_json<nlohmann::json>(read_file(Path(STRATA_TEST_DATA) / "samples/objective.json"));
  return json;
}

ObjectiveOptions masked(double rate, int64_t vocabulary, const std::vector<int32_t>& special = {}) {
  ObjectiveOptions options{.kind = Objective::kMasked, .mask_rate = rate, .mask = kMask};
  options.special.assign(static_cast<size_t>(vocabulary), 0);
  for (const int32_t id : special) options.special[static_cast<size_t>(id)] = 1;
  return options;
}

ObjectiveOptions spans(double rate = 0.15, double mean = 3.0, int32_t sentinels = 1000) {
  ObjectiveOptions options{.kind = Objective::kSpanCorruption,
                           .mask_rate = rate,
                           .mean_span = mean,
                           .start = kStart,
                           .end_of_text = kEnd};
  for (int32_t i = 0; i < sentinels; ++i) options.sentinels.push_back(kSentinel - i);
  return options;
}

bool is_sentinel(int32_t id) {
  return id <= kSentinel && id > kSentinel - 1000;
}

// The rows of `batch`, one after another.
OwnedBatch row_at(const OwnedBatch& batch, const RowShape& shape, int64_t row) {
  OwnedBatch out(1, shape);
  const auto take = [row](const std::vector<int32_t>& from, std::vector<int32_t>& to) {
    std::copy_n(from.begin() + row * static_cast<int64_t>(to.size()), to.size(), to.begin());
  };
  take(batch.tokens, out.tokens);
  take(batch.targets, out.targets);
  take(batch.positions, out.positions);
  take(batch.kv_begin, out.kv_begin);
  take(batch.encoder_tokens, out.encoder_tokens);
  take(batch.encoder_kv_begin, out.encoder_kv_begin);
  take(batch.cross_kv_begin, out.cross_kv_begin);
  return out;
}

// The window of a row, restored from its source and target only.
std::vector<int32_t> restored(const OwnedBatch& row) {
  std::map<int32_t, std::vector<int32_t>> cut;
  int32_t sentinel = -1;
  for (const int32_t id : row.targets) {
    if (id == kEnd) break;
    if (is_sentinel(id)) {
      sentinel = id;
      EXPECT_TRUE(cut.try_emplace(id).second) << "a sentinel twice";
    } else {
      cut[sentinel].push_back(id);
    }
  }
  std::vector<int32_t> text;
  size_t used = 0;
  for (const int32_t id : row.encoder_tokens) {
    if (id == kEnd) break;
    if (!is_sentinel(id)) {
      text.push_back(id);
      continue;
    }
    EXPECT_EQ(id, kSentinel - static_cast<int32_t>(used++)) << "sentinels in the order of use";
    EXPECT_FALSE(cut[id].empty());
    text.insert(text.end(), cut[id].begin(), cut[id].end());
  }
  EXPECT_EQ(used, cut.size());
  return text;
}

TEST(SpanLengths, AgreeWithThePublication) {
  EXPECT_EQ(span_lengths(512, 0.15, 3.0).window, 568);
  EXPECT_EQ(span_lengths(512, 0.15, 3.0).target, 114);
  for (const auto& row : golden()["lengths"]) {
    const auto lengths = span_lengths(row["source"], row["rate"], row["mean_span"]);
    EXPECT_EQ(lengths.window, row["window"].get<int64_t>()) << row;
    EXPECT_EQ(lengths.target, row["target"].get<int64_t>()) << row;
  }
  for (const auto& table : golden()["counts"]) {
    for (int64_t tokens = 2; tokens < 130; ++tokens) {
      const auto counts = span_counts(tokens, table["rate"], table["mean_span"]);
      const auto& expected = table["counts"][static_cast<size_t>(tokens - 2)];
      EXPECT_EQ(counts.noise, expected[0].get<int64_t>()) << tokens;
      EXPECT_EQ(counts.spans, std::min(expected[1].get<int64_t>(), tokens - counts.noise)) << tokens;
    }
  }
}

TEST(SpanLengths, WindowsFillTheirRows) {
  for (const double rate : {0.05, 0.15, 0.3, 0.45, 0.6, 0.8}) {
    for (const double mean : {1.0, 1.7, 3.0, 5.0, 10.0, 64.0}) {
      if (rate / mean > 1 - rate) continue;
      for (int64_t source = 3; source < 400; source += 1 + source / 13) {
        const auto [window, target] = span_lengths(source, rate, mean);
        const auto [noise, count] = span_counts(window, rate, mean);
        EXPECT_EQ(window - noise + count + 1, source) << rate << " " << mean;
        EXPECT_EQ(noise + count + 1, target);
        for (int64_t less = 2; less < window; ++less) {  // of the last window of a text
          const auto fewer = span_counts(less, rate, mean);
          ASSERT_LE(less - fewer.noise + fewer.spans + 1, source);
          ASSERT_LE(fewer.noise + fewer.spans + 1, target);
        }
      }
    }
  }
  expect_error(ErrorKind::kConfig, {"data.mask_rate", "1"}, [] { span_lengths(512, 1, 3); });
  expect_error(ErrorKind::kConfig, {"data.mask_rate", "0"}, [] { span_lengths(512, 0, 3); });
  expect_error(ErrorKind::kConfig, {"data.mean_span", "0.5"}, [] { span_lengths(512, 0.15, 0.5); });
  expect_error(ErrorKind::kConfig, {"data.mean_span", "at least 1.50"}, [] { span_lengths(512, 0.6, 1.4); });
  expect_error(ErrorKind::kConfig, {"training.sequence_length", "2"}, [] { span_lengths(2, 0.15, 3); });
}

// The rates of masked, random and unchanged tokens are within five deviations of those of the collator of
// transformers on the same number of tokens.
TEST(Masked, AgreesWithTransformers) {
  const TemporaryFolder folder;
  for (const auto& expected : golden()["collator"]) {
    const int64_t vocabulary = expected["vocabulary"];
    const std::vector<int32_t> special_ids = expected["special_ids"];
    const ObjectiveOptions options = masked(expected["rate"], vocabulary, special_ids);
    std::vector<uint32_t> ids(1 << 18);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = philox({5, 1}, i)[0] % static_cast<uint32_t>(vocabulary);
    const Path path = folder.write_values("random.bin", ids);
    folder.write("random.json", R"({"dtype": "u32"})");
    const auto source =
        single_source(open_token_corpus({path.string()}),
                      {.sequence_length = 512, .seed = 8, .pack = Pack::kStream, .objective = options});
    std::map<std::string, double> counts;
    EXPECT_EQ(source.shape().target_share, options.mask_rate);
    OwnedBatch batch(64, source.shape());
    BatchScratch scratch;
    for (int64_t first = 0; first < 4096; first += 64) {  // eight epochs
      int64_t chosen = 0;
      const int64_t counted = source.fill(first, 64, batch.view(), scratch);
      for (int64_t row = 0; row < 64; ++row) {
        const int64_t window = source.place(first + row).window;
        for (int64_t j = 0; j < 512; ++j) {
          const auto at = static_cast<size_t>(row * 512 + j);
          const auto id = static_cast<int32_t>(ids[static_cast<size_t>(window * 512 + j)]);
          const bool special = id < 5;
          counts["plain"] += special ? 0 : 1;
          if (batch.targets[at] == -1) {
            ASSERT_EQ(batch.tokens[at], id);
            continue;
          }
          ++chosen;
          ASSERT_FALSE(special);
          ASSERT_EQ(batch.targets[at], id);
          const int32_t now = batch.tokens[at];
          ++counts["chosen"];
          ++counts[now == kMask ? "mask" : now == id ? "same" : now < 5 ? "special" : "other"];
        }
      }
      ASSERT_EQ(counted, chosen);
    }
    const auto compare = [&](const char* what, const char* of) {
      const double n = counts[of], m = expected[of], share = expected[what].get<double>() / m;
      EXPECT_NEAR(counts[what] / n, share, 5 * std::sqrt(share * (1 - share) * (1 / n + 1 / m))) << what;
    };
    EXPECT_GT(counts["plain"], 2e6);
    compare("chosen", "plain");
    for (const char* what : {"mask", "same", "special", "other"}) compare(what, "chosen");
  }
}

TEST(Masked, KeepsPositionsOfEveryPacking) {
  const TemporaryFolder folder;
  std::vector<uint32_t> ids;
  for (uint32_t d = 0; d < 300; ++d) {
    for (uint32_t j = 0; j < 2 + d * 7 % 60; ++j) ids.push_back(static_cast<uint32_t>(5 + ids.size() % 90));
    ids.push_back(0);
  }
  const Path path = folder.write_values("documents.bin", ids);
  folder.write("documents.json", R"({"dtype": "u32", "end_of_text_id": 0})");
  const TokenCorpus corpus = open_token_corpus({path.string()});
  const int64_t length = 48, rows = 40;
  for (const Pack pack : {Pack::kDocuments, Pack::kStream, Pack::kBestFit}) {
    const SampleOptions plain{.sequence_length = length, .shuffle = false, .pack = pack};
    SampleOptions hidden = plain;
    hidden.objective = masked(0.15, 100, {0, 1, 2, 3, 4});
    const auto causal = single_source(corpus, plain), source = single_source(corpus, hidden);
    OwnedBatch before(rows, length), after(rows, length);
    BatchScratch scratch;
    causal.fill(0, rows, before.view(), scratch);
    const int64_t counted = source.fill(0, rows, after.view(), scratch);
    // The causal rows take the same windows, so that they show the hidden tokens.
    EXPECT_EQ(after.positions, before.positions);
    EXPECT_EQ(after.kv_begin, before.kv_begin);
    int64_t chosen = 0;
    for (size_t i = 0; i < after.tokens.size(); ++i) {
      if (after.targets[i] == -1) {
        EXPECT_EQ(after.tokens[i], before.tokens[i]);
      } else {
        EXPECT_EQ(after.targets[i], before.tokens[i]);
        EXPECT_NE(before.tokens[i], 0) << "the end of a text, or padding, is never chosen";
        ++chosen;
      }
    }
    EXPECT_EQ(chosen, counted);
    EXPECT_NEAR(static_cast<double>(chosen), 0.15 * static_cast<double>(rows * length), 90);
  }
}

TEST(SpanCorruption, SourceAndTargetRestoreTheText) {
  const TemporaryFolder folder;
  const TokenCorpus corpus = counting_corpus(folder, "a", 20000, 1);
  for (const auto& [rate, mean, length] : std::vector<std::tuple<double, double, int64_t>>{{0.15, 3.0, 512},
                                                                                           {0.15, 3.0, 31},
                                                                                           {0.5, 3.0, 64},
                                                                                           {0.5, 3.0, 65},
                                                                                           {0.3, 1.0, 100},
                                                                                           {0.15, 3.0, 3}}) {
    const auto source = single_source(corpus, {.sequence_length = length,
                                               .seed = 3,
                                               .shuffle = false,
                                               .pack = Pack::kStream,
                                               .objective = spans(rate, mean)});
    const RowShape shape = source.shape();
    const auto [noise, count] = span_counts(shape.window, rate, mean);
    EXPECT_EQ(source.samples_per_epoch(), 20000 / shape.window);
    const int64_t rows = std::min<int64_t>(40, source.samples_per_epoch());
    OwnedBatch batch(rows, shape);
    BatchScratch scratch;
    EXPECT_EQ(source.fill(0, rows, batch.view(), scratch), rows * (noise + count + 1));
    for (int64_t r = 0; r < rows; ++r) {
      const OwnedBatch row = row_at(batch, shape, r);
      std::vector<int32_t> expected(static_cast<size_t>(shape.window));
      std::iota(expected.begin(), expected.end(), static_cast<int32_t>(1 + r * shape.window));
      ASSERT_EQ(restored(row), expected);
      // A text begins with kept tokens and ends with a removed span.
      EXPECT_FALSE(is_sentinel(row.encoder_tokens[0]));
      EXPECT_EQ(row.tokens[0], kStart);
      for (size_t j = 1; j < row.tokens.size() && row.targets[j] >= 0; ++j)
        EXPECT_EQ(row.tokens[j], row.targets[j - 1]);
      if (rate != 0.5) {
        EXPECT_EQ(row.targets.back(), kEnd);
        EXPECT_EQ(row.encoder_tokens.back(), kEnd);
        EXPECT_EQ(row.encoder_kv_begin, std::vector<int32_t>(row.encoder_kv_begin.size()));
        EXPECT_EQ(row.cross_kv_begin, std::vector<int32_t>(row.cross_kv_begin.size()));
        EXPECT_EQ(row.kv_begin, std::vector<int32_t>(row.kv_begin.size()));
        EXPECT_EQ(row.positions.back(), shape.tokens - 1);
      }
    }
  }
}

// "All masks are equally likely" (t5.data.preprocessors).
TEST(SpanCorruption, EveryCutIsEquallyLikely) {
  const TemporaryFolder folder;
  const ObjectiveOptions options = spans(0.45, 1.7);
  const auto source = single_source(counting_corpus(folder, "a", 100, 1),
                                    {.sequence_length = 10, .pack = Pack::kStream, .objective = options});
  const RowShape shape = source.shape();
  const auto [noise, count] = span_counts(shape.window, 0.45, 1.7);
  ASSERT_EQ(shape.window, 11);
  ASSERT_EQ(noise, 5);
  ASSERT_EQ(count, 3);
  std::map<std::vector<int32_t>, int> seen;  // by the places of the sentinels in the source and the target
  OwnedBatch batch(1, shape);
  BatchScratch scratch;
  const int draws = 30000;
  for (int i = 0; i < draws; ++i) {
    source.fill(i, 1, batch.view(), scratch);
    std::vector<int32_t> places;
    for (const auto* ids : {&batch.encoder_tokens, &batch.targets}) {
      for (size_t j = 0; j < ids->size(); ++j)
        if (is_sentinel((*ids)[j])) places.push_back(static_cast<int32_t>(j));
    }
    ++seen[places];
  }
  const double ways = 10 * 6;  // two cuts among five places, and among four
  EXPECT_EQ(static_cast<double>(seen.size()), ways);
  double chi_square = 0;
  for (const auto& [places, times] : seen)
    chi_square += (times - draws / ways) * (times - draws / ways) / (draws / ways);
  EXPECT_LT(chi_square, 59 + 5 * std::sqrt(2 * 59.0));
}

TEST(Objective, RowsDependOnlyOnSeedAndNumber) {
  const TemporaryFolder folder;
  const TokenCorpus corpus = counting_corpus(folder, "a", 9000, 1);
  for (const ObjectiveOptions& objective : {masked(0.15, 10000), spans()}) {
    const auto make = [&](uint64_t seed) {
      return single_source(
          corpus, {.sequence_length = 40, .seed = seed, .pack = Pack::kStream, .objective = objective});
    };
    const auto source = make(1), other = make(2);
    const RowShape shape = source.shape();
    const int64_t rows = 60, first = 230;
    OwnedBatch whole(rows, shape);
    BatchScratch scratch;
    source.fill(first, rows, whole.view(), scratch);
    std::vector<OwnedBatch> parts(static_cast<size_t>(rows), OwnedBatch(1, shape));
    std::vector<std::jthread> threads;
    for (int64_t thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&, thread] {
        BatchScratch own;
        for (int64_t row = rows - 1 - thread; row >= 0; row -= 3)
          source.fill(first + row, 1, parts[static_cast<size_t>(row)].view(), own);
      });
    }
    threads.clear();
    for (int64_t row = 0; row < rows; ++row)
      ASSERT_EQ(parts[static_cast<size_t>(row)], row_at(whole, shape, row));
    Loader loader(source, {.max_sequences = rows});
    const HostBatch& loaded = loader.next(first, rows);
    EXPECT_EQ(loaded[Column::kTokens], whole.tokens);
    EXPECT_EQ(loaded[Column::kTargets], whole.targets);
    EXPECT_EQ(loaded[Column::kEncoderTokens], whole.encoder_tokens);
    EXPECT_EQ(loaded[Column::kEncoderKvBegin], whole.encoder_kv_begin);
    EXPECT_EQ(loaded[Column::kCrossKvBegin], whole.cross_kv_begin);
    OwnedBatch again(rows, shape);
    other.fill(first, rows, again.view(), scratch);
    EXPECT_NE(again, whole);
    // A window masks other tokens in another epoch.
    const auto place = source.place(first);
    int64_t earlier = 0;
    while (source.place(earlier).window != place.window) ++earlier;
    ASSERT_NE(source.place(earlier).epoch, place.epoch);
    OwnedBatch then(1, shape);
    source.fill(earlier, 1, then.view(), scratch);
    EXPECT_NE(then.targets, row_at(whole, shape, 0).targets);
  }
}

TEST(Objective, RowsPastTheEndArePadding) {
  const TemporaryFolder folder;
  const auto source =
      single_source(counting_corpus(folder, "a", 100, 1),
                    {.sequence_length = 40, .pack = Pack::kStream, .epochs = 1, .objective = spans()});
  ASSERT_EQ(source.total_samples(), 2);
  const RowShape shape = source.shape();
  OwnedBatch batch(3, shape);
  BatchScratch scratch;
  EXPECT_EQ(source.fill(0, 3, batch.view(), scratch), 2 * shape.tokens);
  const OwnedBatch row = row_at(batch, shape, 2);
  const auto source_places = static_cast<size_t>(shape.encoder_length),
             places = static_cast<size_t>(shape.tokens);
  std::vector<int32_t> own(source_places);
  std::iota(own.begin(), own.end(), 0);
  EXPECT_EQ(row.encoder_tokens, std::vector<int32_t>(source_places));
  EXPECT_EQ(row.encoder_kv_begin, own);
  own.resize(places);
  EXPECT_EQ(row.kv_begin, own);
  EXPECT_EQ(row.tokens, std::vector<int32_t>(places));
  EXPECT_EQ(row.targets, std::vector<int32_t>(places, -1));
  EXPECT_EQ(row.cross_kv_begin, std::vector<int32_t>(places, -1));
}

TEST(Objective, EvaluationSeesEveryTokenOnce) {
  const TemporaryFolder folder;
  for (const int64_t tokens : {2, 3, 44, 45, 46, 89, 90, 91, 400}) {
    const TokenCorpus corpus = counting_corpus(folder, "a", tokens, 1);
    const EvalWindows windows(corpus, {.sequence_length = 40, .objective = spans()});
    const RowShape shape = windows.shape();
    ASSERT_EQ(shape.window, 44);
    OwnedBatch batch(windows.windows() + 1, shape);
    BatchScratch scratch;
    const int64_t counted = windows.fill(0, windows.windows() + 1, batch.view(), scratch);
    EXPECT_EQ(counted,
              std::count_if(batch.targets.begin(), batch.targets.end(), [](int32_t t) { return t >= 0; }));
    std::vector<int32_t> text;
    for (int64_t r = 0; r < windows.windows(); ++r) {
      const OwnedBatch row = row_at(batch, shape, r);
      for (const int32_t id : restored(row)) text.push_back(id);
      // After the end, places attend only to themselves.
      const auto end = std::find(row.encoder_tokens.begin(), row.encoder_tokens.end(), kEnd);
      for (auto j = end - row.encoder_tokens.begin(); j < shape.encoder_length; ++j) {
        const auto at = static_cast<size_t>(j);
        EXPECT_EQ(row.encoder_kv_begin[at], j == end - row.encoder_tokens.begin() ? 0 : j);
      }
      for (size_t j = 0; j < row.targets.size(); ++j) {
        EXPECT_EQ(row.cross_kv_begin[j], row.targets[j] < 0 ? -1 : 0);
        EXPECT_EQ(row.kv_begin[j], row.targets[j] < 0 ? static_cast<int32_t>(j) : 0);
      }
    }
    // A single token at the end is omitted.
    std::vector<int32_t> expected(static_cast<size_t>(tokens % 44 == 1 ? tokens - 1 : tokens));
    std::iota(expected.begin(), expected.end(), 1);
    EXPECT_EQ(text, expected);

    const EvalWindows hidden(corpus, {.sequence_length = 40, .objective = masked(0.5, 500)});
    OwnedBatch rows(hidden.windows(), hidden.shape());
    hidden.fill(0, hidden.windows(), rows.view(), scratch);
    for (size_t i = 0; i < rows.tokens.size(); ++i) {
      const int32_t id = rows.targets[i] >= 0 ? rows.targets[i] : rows.tokens[i];
      EXPECT_EQ(id, static_cast<int64_t>(i) < tokens ? static_cast<int32_t>(i + 1) : 0);
    }
    EXPECT_EQ(hidden.windows(), tokens / 40 + (tokens % 40 > 1 ? 1 : 0));
  }
  const TokenCorpus corpus = counting_corpus(folder, "a", 100, 1);
  expect_error(ErrorKind::kConfig, {"--stride", "8"}, [&] {
    EvalWindows(corpus, {.sequence_length = 16, .stride = 8, .objective = masked(0.15, 500)});
  });
  expect_error(ErrorKind::kConfig, {"data.pack", "stream"}, [&] {
    EvalWindows(corpus, {.sequence_length = 16, .pack = Pack::kDocuments, .objective = spans()});
  });
  expect_error(ErrorKind::kData, {"1 tokens"}, [&] {
    EvalWindows(counting_corpus(folder, "b", 1), {.sequence_length = 16, .objective = spans()});
  });
}

TEST(Objective, RejectsInvalidCombinations) {
  const TemporaryFolder folder;
  const TokenCorpus corpus = counting_corpus(folder, "a", 600, 1);
  for (const Pack pack : {Pack::kDocuments, Pack::kBestFit}) {
    expect_error(ErrorKind::kConfig, {"data.pack", "span corruption", "stream"},
                 [&] { single_source(corpus, {.sequence_length = 40, .pack = pack, .objective = spans()}); });
  }
  for (const ObjectiveOptions& objective : {masked(0.15, 500), spans()}) {
    expect_error(ErrorKind::kConfig, {"data.fim_rate", "0.5"}, [&] {
      single_source(corpus, {.sequence_length = 40,
                             .pack = Pack::kStream,
                             .fim = {.rate = 0.5, .end_of_text = {}, .begin_of_text = {}},
                             .objective = objective});
    });
  }
  expect_error(
      ErrorKind::kConfig, {"27 sentinels", "<extra_id_26>", "512", "28 spans", "data.mean_span"}, [&] {
        single_source(corpus,
                      {.sequence_length = 512, .pack = Pack::kStream, .objective = spans(0.15, 3.0, 27)});
      });
  expect_error(ErrorKind::kConfig, {"43 tokens", "needs 44"}, [&] {
    single_source(counting_corpus(folder, "b", 43),
                  {.sequence_length = 40, .pack = Pack::kStream, .objective = spans()});
  });
  // A window of masked tokens needs none after it.
  EXPECT_EQ(
      single_source(corpus, {.sequence_length = 600, .objective = masked(0.15, 500)}).samples_per_epoch(), 1);
}

TEST(Objective, TokensAreFoundByTheirNames) {
  const auto in = [](const std::map<std::string, int32_t, std::less<>>& names) {
    return [&names](std::string_view name) -> std::optional<int32_t> {
      const auto found = names.find(name);
      return found == names.end() ? std::nullopt : std::optional(found->second);
    };
  };
  std::map<std::string, int32_t, std::less<>> t5, mt5;
  for (int32_t i = 0; i < 100; ++i) {
    t5["<extra_id_" + std::to_string(i) + ">"] = 32099 - i;
    mt5["\u2581<extra_id_" + std::to_string(i) + ">"] = 250099 - i;
  }
  const auto ids = find_sentinels(in(t5));
  EXPECT_EQ(ids.size(), 100u);
  EXPECT_EQ(ids[0], 32099);
  EXPECT_EQ(ids[99], 32000);
  EXPECT_EQ(find_sentinels(in(mt5))[1], 250098);
  EXPECT_EQ(find_mask_token(in({{"[MASK]", 103}})), 103);
  EXPECT_EQ(find_mask_token(in({{"<mask>", 50264}})), 50264);
  expect_error(ErrorKind::kConfig, {"data.objective", "[MASK]", "<mask>", "tokenizer.path"},
               [&] { find_mask_token(in(t5)); });
  expect_error(ErrorKind::kConfig, {"data.objective", "<extra_id_0>", "tokenizer.json", "tokenizer.path"},
               [&] {
                 find_sentinels(in({{"[MASK]", 103}}));
               });
}

}  // namespace
}  // namespace strata::data
