// Compares MinHash with datatrove's golden numbers, and the stage with a search over all pairs.
#include <cmath>
#include <random>
#include <set>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/parallel.h"
#include "data/dedup/corpus.h"
#include "data/dedup/minhash_hash.h"
#include "data/dedup/sha1.h"
#include "data/dedup/shingle_sets.h"
#include "data/dedup/span_hash.h"

namespace strata::data::dedup {
namespace {

std::string hex(std::span<const uint8_t> bytes) {
  std::string out;
  for (const uint8_t b : bytes) out += fmt::format("{:02x}", b);
  return out;
}

std::vector<uint64_t> shingles_of(const MinhashSignature& minhash, std::string text) {
  TextView view;
  view.reset(text);
  JoinedWords words;
  join_simplified_words(view, minhash.options().words, words);
  std::vector<uint64_t> hashes;
  minhash.shingles(words, hashes);
  return hashes;
}

std::vector<uint64_t> signature_of(const MinhashSignature& minhash, const std::string& text) {
  std::vector<uint64_t> out;
  minhash.signature(shingles_of(minhash, text), out);
  out.resize(minhash.size());
  return out;
}

TEST(Sha1, PublishedVectors) {
  EXPECT_EQ(hex(sha1("abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(hex(sha1("")), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(hex(sha1("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
  EXPECT_EQ(hex(sha1(std::string(1000000, 'a'))), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

// numpy 1.24's RandomState(1), through datatrove.
TEST(Minhash, Permutations) {
  const Drawn drawn = draw_permutations(1, 112);
  EXPECT_EQ(drawn.a[0], 775169054918279404u);
  EXPECT_EQ(drawn.a[1], 1758426461858698313u);
  EXPECT_EQ(drawn.a[2], 2109959069025162u);
  EXPECT_EQ(drawn.a[111], 223865076026037746u);
  EXPECT_EQ(drawn.b[0], 1062448801025099917u);
  EXPECT_EQ(drawn.b[1], 1324811268927594100u);
  EXPECT_EQ(drawn.b[2], 1217488311597731462u);
  EXPECT_EQ(drawn.b[111], 1097409548522419201u);
}

constexpr const char* kGenesis = "In the beginning GOD created the heaven, and the earth.";

TEST(Minhash, SignaturesOfDatatroveWithXxhash) {
  const MinhashSignature minhash({});
  const auto hashes = shingles_of(minhash, kGenesis);
  ASSERT_EQ(hashes.size(), 6u);
  EXPECT_EQ(hashes[0], 0xa5b9e5d7c3bb38d1u);
  const auto signature = signature_of(minhash, kGenesis);
  EXPECT_EQ(signature[0], 189432306877276008u);
  EXPECT_EQ(signature[1], 507814833998078630u);
  EXPECT_EQ(signature[2], 128243223723502328u);
  EXPECT_EQ(signature[111], 277736072175810954u);
}

TEST(Minhash, SignaturesOfDatatroveWithSha1) {
  MinhashOptions options;
  options.hash = ShingleHash::kSha1;
  const MinhashSignature minhash(options);
  EXPECT_EQ(shingles_of(minhash, kGenesis)[0], 0x68f19fc86b8bfdb4u);
  const auto signature = signature_of(minhash, kGenesis);
  EXPECT_EQ(signature[0], 439065136691788768u);
  EXPECT_EQ(signature[1], 124812941414644552u);
  EXPECT_EQ(signature[2], 168392438359977858u);
  EXPECT_EQ(signature[111], 359938351800247071u);
}

// An isolated punctuation mark leaves two spaces, but shingles have one space between words.
TEST(Minhash, ShinglesHaveOneSpace) {
  MinhashOptions options;
  options.n_grams = 2;
  const MinhashSignature minhash(options);
  EXPECT_EQ(shingles_of(minhash, "a \xCC\x81 b c"), shingles_of(minhash, "a b c"));
  EXPECT_EQ(shingles_of(minhash, "a"), std::vector<uint64_t>{});
  EXPECT_EQ(shingles_of(minhash, ""), std::vector<uint64_t>{});
  EXPECT_EQ(shingles_of(minhash, "...!"), std::vector<uint64_t>{});
  EXPECT_EQ(shingles_of(minhash, "a b").size(), 1u);
}

std::vector<uint64_t> set_of(const MinhashSignature& minhash, const std::string& text) {
  const auto hashes = shingles_of(minhash, text);
  const std::set<uint64_t> set(hashes.begin(), hashes.end());
  return {set.begin(), set.end()};
}

// Base texts, and copies of them with some words changed.
std::vector<std::string> families(Numbers& numbers, size_t bases, size_t copies, uint32_t most_changes) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < bases; ++i) {
    const std::string base = random_words(numbers, 20 + numbers.below(200), 5000);
    texts.push_back(base);
    for (size_t copy = 0; copy < copies; ++copy) {
      std::string changed = base;
      for (uint32_t change = numbers.below(most_changes + 1); change > 0; --change) {
        const size_t at = numbers.below(static_cast<uint32_t>(changed.size()));
        if (changed[at] != ' ') changed[at] = 'z';
      }
      if (numbers.below(3) == 0) changed += " and some more";
      texts.push_back(changed);
    }
  }
  return texts;
}

// All pairs are joined if they agree in a bucket and their sets are similar; the text with the most words is
// kept.
std::vector<Outcome> search_all_pairs(const MinhashSignature& minhash, const std::vector<std::string>& texts,
                                      double min_jaccard) {
  const auto& options = minhash.options();
  const size_t n = texts.size();
  std::vector<std::vector<uint64_t>> signatures(n), sets(n);
  std::vector<size_t> words(n), cluster(n);
  for (size_t i = 0; i < n; ++i) {
    cluster[i] = i;
    sets[i] = set_of(minhash, texts[i]);
    words[i] =
        sets[i].empty() ? 0 : static_cast<size_t>(std::count(texts[i].begin(), texts[i].end(), ' ')) + 1;
    if (!sets[i].empty()) signatures[i] = signature_of(minhash, texts[i]);
  }
  const auto rows = static_cast<size_t>(options.hashes_per_bucket);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (sets[i].empty() || sets[j].empty()) continue;
      bool agree = false;
      for (size_t k = 0; k < signatures[i].size() && !agree; k += rows) {
        agree = std::equal(&signatures[i][k], &signatures[i][k] + rows, &signatures[j][k]);
      }
      if (!agree || jaccard(sets[i], sets[j]) < min_jaccard) continue;
      const size_t from = cluster[i], to = cluster[j];
      for (auto& c : cluster) c = c == from ? to : c;
    }
  }
  std::vector<Outcome> outcomes(n);
  for (size_t i = 0; i < n; ++i) {
    size_t best = i;
    for (size_t j = 0; j < n; ++j) {
      if (cluster[j] != cluster[i]) continue;
      if (words[j] > words[best] || (words[j] == words[best] && j < best)) best = j;
    }
    if (best != i) outcomes[i] = {true, "near_duplicate", static_cast<int64_t>(best)};
  }
  return outcomes;
}

TEST(MinhashStage, EqualsASearchOverAllPairsForAnyParts) {
  for (const bool narrow : {false, true}) {
    for (const double min_jaccard : {0.0, 0.8}) {
      Numbers numbers(2);
      auto texts = families(numbers, 40, 4, 12);
      texts.push_back("too short");
      texts.push_back("");
      texts.push_back("too short");
      MinhashOptions options;
      options.narrow = narrow;
      const auto expected = search_all_pairs(MinhashSignature(options), texts, min_jaccard);
      const auto stage =
          make_stage("minhash", {{"min_jaccard", min_jaccard}, {"precision", int64_t{narrow ? 32 : 64}}});
      for (const auto& parts : ways_to_cut(texts.size())) {
        for (const int64_t memory : {int64_t{0}, int64_t{1} << 30}) {
          EXPECT_EQ(run_stage(*stage, texts, {parts, memory}), expected) << min_jaccard << " " << memory;
        }
      }
    }
  }
}

// tools/golden/make_minhash.py: datatrove's own signatures and clusters, with spaCy's words.
TEST(MinhashStage, EqualsDatatrove) {
  const auto golden = parse_json<nlohmann::json>(read_file(Path(STRATA_TEST_DATA) / "dedup/minhash.json"));
  const auto texts = golden["texts"].get<std::vector<std::string>>();
  for (const auto& run : golden["runs"]) {
    const auto hash = run["hash"].get<std::string>();
    const auto precision = run["precision"].get<int64_t>();
    SCOPED_TRACE(hash + std::to_string(precision));
    MinhashOptions options;
    options.hash = hash == "sha1" ? ShingleHash::kSha1 : ShingleHash::kXxhash;
    options.narrow = precision == 32;
    options.seed = run["seed"].get<int64_t>();
    options.words = WordRule::kSpacy;
    const MinhashSignature minhash(options);
    for (size_t i = 0; i < texts.size(); ++i) {
      uint64_t sum = 0;
      if (!shingles_of(minhash, texts[i]).empty()) {
        const auto signature = signature_of(minhash, texts[i]);
        for (size_t k = 0; k < signature.size(); ++k) sum += (2 * k + 1) * signature[k];
      }
      EXPECT_EQ(std::to_string(sum), run["signature_sums"][i].get<std::string>()) << texts[i];
    }
    const auto outcomes = run_stage(*make_stage("minhash", {{"hash", hash},
                                                            {"precision", precision},
                                                            {"seed", options.seed},
                                                            {"words", std::string("spacy")}}),
                                    texts, {golden["parts"].get<std::vector<size_t>>()});
    // The same clusters, whichever document of a cluster is kept.
    const auto clusters = run["clusters"].get<std::vector<int>>();
    std::map<int, size_t> survivor;
    int64_t dropped = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      dropped += outcomes[i].drop;
      if (clusters[i] < 0) {
        EXPECT_FALSE(outcomes[i].drop) << i;
        continue;
      }
      const size_t kept = outcomes[i].drop ? static_cast<size_t>(outcomes[i].original) : i;
      EXPECT_EQ(survivor.emplace(clusters[i], kept).first->second, kept) << i;
    }
    EXPECT_EQ(dropped, run["removed"].get<int64_t>());
    EXPECT_GT(dropped, 10);
  }
}

TEST(MinhashStage, SpacyWordsAndSha1) {
  Numbers numbers(3);
  auto texts = families(numbers, 10, 3, 6);
  texts[3] += " don't you'll";
  MinhashOptions options;
  options.hash = ShingleHash::kSha1;
  options.words = WordRule::kSpacy;
  const MinhashSignature minhash(options);
  EXPECT_EQ(shingles_of(minhash, "a b c dont e").size(), 2u);  // do, nt
  const auto outcomes = run_stage(
      *make_stage("minhash", {{"hash", std::string("sha1")}, {"words", std::string("spacy")}}), texts);
  EXPECT_GT(std::count_if(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.drop; }), 5);
}

// More documents than the minimum capacity of a sorter, so that runs are merged in several passes.
TEST(MinhashStage, TinyMemoryAndThreadsChangeNothing) {
  Numbers numbers(4);
  std::vector<std::string> texts;
  for (int i = 0; i < 20000; ++i) texts.push_back(random_words(numbers, 6, 6));
  const auto stage = make_stage("minhash", {{"num_buckets", int64_t{3}}, {"hashes_per_bucket", int64_t{2}}});
  StageStats stats, tiny_stats;
  const auto expected = run_stage(*stage, texts, {}, &stats);
  EXPECT_GT(std::count_if(expected.begin(), expected.end(), [](const Outcome& o) { return o.drop; }), 1000);
  const int threads = compute_threads();
  set_compute_threads(threads == 1 ? 2 : 1);
  EXPECT_EQ(run_stage(*stage, texts, {{5000, 15000}, 1}, &tiny_stats), expected);
  set_compute_threads(threads);
  EXPECT_EQ(stats.counters(), tiny_stats.counters());
}

TEST(MinhashStage, KeepsExactlyOneOfEveryCluster) {
  const std::vector<std::string> same(300, "one two three four five six seven");
  for (const double min_jaccard : {0.0, 1.0}) {
    StageStats stats;
    const auto outcomes = run_stage(*make_stage("minhash", {{"min_jaccard", min_jaccard}}), same,
                                    {{100, 0, 200}, 1 << 20}, &stats);
    EXPECT_FALSE(outcomes[0].drop);
    for (size_t i = 1; i < same.size(); ++i) EXPECT_EQ(outcomes[i], (Outcome{true, "near_duplicate", 0}));
    EXPECT_EQ(stats.counters().at("largest_cluster"), 300);
    EXPECT_EQ(stats.counters().at("clusters"), 1);
  }
  EXPECT_TRUE(run_stage(*make_stage("minhash"), {}, {{0, 0}}).empty());
  EXPECT_TRUE(run_stage(*make_stage("minhash"), {}, {{0}}).empty());
}

TEST(MinhashStage, KeepsTheCopyWithTheMostWords) {
  Numbers numbers(5);
  const std::string base = random_words(numbers, 400, 5000);
  const auto outcomes = run_stage(*make_stage("minhash"), {base, base + " more", base + " also"});
  EXPECT_EQ(outcomes[0], (Outcome{true, "near_duplicate", 1}));
  EXPECT_FALSE(outcomes[1].drop);
  EXPECT_EQ(outcomes[2], (Outcome{true, "near_duplicate", 1}));
}

// The curve 1 - (1 - s^8)^14: nearly all pairs above 0.9, and one in twenty at 0.5.
TEST(MinhashStage, FollowsTheDetectionCurve) {
  Numbers numbers(6);
  const MinhashSignature minhash({});
  std::vector<std::string> texts;
  std::vector<double> alike;
  for (int i = 0; i < 1500; ++i) {
    const std::string base = random_words(numbers, 150, 50000);
    std::string changed = base;
    // A changed word changes five of 146 shingles.
    for (uint32_t change = numbers.below(14); change > 0; --change) {
      const size_t at = changed.find(' ', numbers.below(static_cast<uint32_t>(changed.size() - 20)));
      changed.insert(at, "x");
    }
    texts.push_back(base);
    texts.push_back(changed);
    alike.push_back(jaccard(set_of(minhash, base), set_of(minhash, changed)));
  }
  const auto outcomes = run_stage(*make_stage("minhash"), texts);
  int sure = 0, sure_found = 0, low = 0, low_found = 0;
  double expected_low = 0;
  for (size_t i = 0; i < alike.size(); ++i) {
    const bool found = outcomes[2 * i].drop || outcomes[2 * i + 1].drop;
    if (alike[i] >= 0.9) {
      ++sure;
      sure_found += found;
    } else if (alike[i] < 0.5) {
      ++low;
      low_found += found;
      expected_low += 1 - std::pow(1 - std::pow(alike[i], 8), 14);
    }
  }
  EXPECT_GT(sure, 100);
  EXPECT_GT(low, 100);
  EXPECT_GE(sure_found, 0.99 * sure);
  EXPECT_LE(low_found, expected_low + 4 * std::sqrt(expected_low) + 1) << low;
}

TEST(MinhashStage, RejectsInvalidOptions) {
  EXPECT_THROW(make_stage("minhash", {{"n_grams", int64_t{0}}}), ConfigError);
  EXPECT_THROW(make_stage("minhash", {{"hash", std::string("md5")}}), ConfigError);
  EXPECT_THROW(make_stage("minhash", {{"precision", int64_t{16}}}), ConfigError);
  EXPECT_THROW(make_stage("minhash", {{"min_jaccard", 1.5}}), ConfigError);
  EXPECT_THROW(make_stage("minhash", {{"words", std::string("nltk")}}), ConfigError);
}

TEST(SpanHash, EqualsTheHashOfEachSpan) {
  std::mt19937 random(5);
  for (const size_t words : {size_t{1}, size_t{5}, size_t{6}, size_t{13}}) {
    for (size_t number = words; number < 60; ++number) {
      std::string text;
      std::vector<uint32_t> begins;
      for (size_t i = 0; i < number; ++i) {
        begins.push_back(static_cast<uint32_t>(text.size()));
        // Spans of five bytes to several hundred.
        const size_t size = 1 + random() % (number % 4 == 0 ? 90 : 9);
        for (size_t k = 0; k < size; ++k) text += static_cast<char>(random());
        text += ' ';
      }
      begins.push_back(static_cast<uint32_t>(text.size()));
      text.pop_back();
      const std::vector<char> tight(text.begin(), text.end());
      std::vector<uint64_t> hashes(number - words + 1);
      const size_t done = hash_spans({tight.data(), tight.size()}, begins.data(), words, hashes);
      ASSERT_LE(done, hashes.size());
      for (size_t i = 0; i < done; ++i) {
        const size_t size = begins[i + words] - 1 - begins[i];
        EXPECT_EQ(hashes[i], XXH64(tight.data() + begins[i], size, 0)) << size;
      }
    }
  }
}

}  // namespace
}  // namespace strata::data::dedup
