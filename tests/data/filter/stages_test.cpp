#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "data/filter/make_stage.h"
#include "data/filter/pii.h"
#include "data/filter/repair.h"

namespace strata::data {
namespace {

using Json = nlohmann::json;
using Strings = std::vector<std::string>;
using testing::HasSubstr;

std::string reason(const DocumentStage& stage, const std::string& text) {
  return apply_stage(stage, text).reason;
}

// A temporary folder with one file.
class WithFile : public testing::Test {
 protected:
  Path folder_ = std::filesystem::temp_directory_path() /
                 ("strata_filter_" + std::to_string(::getpid()) +
                  testing::UnitTest::GetInstance()->current_test_info()->name());
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
};

TEST(Kinds, AreComplete) {
  Strings names;
  for (const StageKind& kind : filter_stage_kinds()) {
    names.push_back(kind.name);
    EXPECT_FALSE(kind.help.empty());
    for (const StageParameter& parameter : kind.parameters)
      EXPECT_FALSE(parameter.help.empty()) << parameter.name;
  }
  EXPECT_EQ(names, (Strings{"gopher_repetition", "gopher_quality", "c4_quality", "fineweb_quality", "simple",
                            "pii", "normalize", "language", "url_blocklist", "word_blocklist",
                            "fasttext_quality", "line_corrections", "decontaminate"}));
}

TEST(Kinds, RejectBadValues) {
  EXPECT_THROW(make_stage("gopher_quality", {{"words", std::string("nltk")}}), ConfigError);
  EXPECT_THROW(make_stage("gopher_quality", {{"min_doc_words", -1.0}}), ConfigError);
  EXPECT_THROW(make_stage("gopher_quality", {{"max_non_alpha_words_ratio", 1.5}}), ConfigError);
  EXPECT_THROW(make_stage("gopher_repetition", {{"top_n_grams", Strings{"2=0.2"}}}), ConfigError);
  EXPECT_THROW(make_stage("gopher_repetition", {{"dup_n_grams", Strings{"6:0.2", "5:0.1"}}}), ConfigError);
  EXPECT_THROW(make_stage("normalize", {{"normalization", std::string("NFX")}}), ConfigError);
  EXPECT_THROW(make_stage("word_blocklist"), ConfigError);
  EXPECT_THROW(make_stage("word_blocklist", {{"words_file", std::string("/nowhere/words")}}), ConfigError);
  EXPECT_THROW(make_stage("fasttext_quality"), ConfigError);
  EXPECT_THROW(make_stage("decontaminate"), ConfigError);
  EXPECT_THROW(make_stage("language", {{"model", std::string("/nowhere/lid.bin")}}), ConfigError);
}

TEST(Simple, EachReason) {
  const auto stage = make_stage("simple", {{"max_length", 400.0}});
  std::string prose;
  while (prose.size() < 150) prose += "some plain words here ";
  EXPECT_EQ(reason(*stage, prose), "");
  EXPECT_EQ(reason(*stage, "short"), "too_short");
  EXPECT_EQ(reason(*stage, std::string(401, 'a')), "too_long");
  EXPECT_EQ(reason(*stage, std::string(150, 'a')), "mean_word_length");
  EXPECT_EQ(reason(*stage, std::string(150, ' ')), "empty");
  std::string symbols, digits;
  while (symbols.size() < 150) symbols += "ab#$% ";
  while (digits.size() < 150) digits += "a12345 ";
  EXPECT_EQ(reason(*stage, symbols), "symbol_ratio");
  EXPECT_EQ(reason(*stage, digits), "alpha_ratio");
}

TEST(Pii, MasksAsDatatrove) {
  const auto stage = make_stage("pii", {{"remove_phones", false}});
  std::ifstream file(STRATA_TEST_DATA "/filter/pii.jsonl");
  int changed = 0;
  for (std::string line; std::getline(file, line);) {
    const Json pair = parse_json<Json>(line);
    EXPECT_EQ(apply_stage(*stage, pair[0]), (Outcome{"", pair[1]})) << pair[0];
    changed += pair[0] != pair[1];
  }
  EXPECT_GT(changed, 40);
}

TEST(Pii, MasksPhonesAsDolma) {
  const auto stage = make_stage("pii");
  const std::string mask = "|||PHONE_NUMBER|||";
  EXPECT_EQ(apply_stage(*stage, "call (555) 123-4567 now").text, "call " + mask + " now");
  EXPECT_EQ(apply_stage(*stage, "call 555.123.4567").text, "call " + mask);
  EXPECT_EQ(apply_stage(*stage,
                        "call\u00a0"
                        "5551234567, 555 - 123 4567")
                .text,
            "call\u00a0" + mask + ", " + mask);
  for (const std::string kept : {"555-123-4567", "x555-123-4567", "call 55-123-4567", "call 555-123-456",
                                 "ISBN is 555-123-4567", "see # 555 123 4567", "doi 555 123 4567"})
    EXPECT_EQ(apply_stage(*stage, kept).text, kept);
}

TEST(Pii, PythonsGlobalAddresses) {
  for (const std::string address : {"8.8.8.8", "192.0.0.9", "224.0.0.1", "100.128.0.1"})
    EXPECT_TRUE(is_masked_ipv4(address, true)) << address;
  for (const std::string address : {"10.1.1.1", "192.0.0.1", "240.0.0.1", "100.64.9.9", "08.8.8.8"})
    EXPECT_FALSE(is_masked_ipv4(address, true)) << address;
  EXPECT_TRUE(is_masked_ipv4("10.1.1.1", false));
}

TEST(Normalize, RepairsAndComposes) {
  const auto stage = make_stage("normalize");
  const auto text = [&](const std::string& in) { return apply_stage(*stage, in).text; };
  EXPECT_EQ(text("cafe\u0301 caf\u00e9"), "caf\u00e9 caf\u00e9");
  EXPECT_EQ(text("plain\tascii\r\n"), "plain\tascii\r\n");
  EXPECT_EQ(text("a\x01"
                 "b\x7f"
                 "c\ufeff"),
            "abc");
  EXPECT_EQ(text("\x1b[1;31mred\x1b[0m"), "red");
  EXPECT_EQ(text("it\u0092s"), "it\u2019s");
  // UTF-8 read as Windows-1252.
  EXPECT_EQ(text("caf\u00c3\u00a9"), "caf\u00e9");
  EXPECT_EQ(text("it\u00e2\u20ac\u2122s \u00e2\u20ac\u0153x\u00e2\u20ac\u009d"), "it\u2019s \u201cx\u201d");
  EXPECT_EQ(text("\u00d0\u0178\u00d1\u20ac\u00d0\u00b8"), "\u041f\u0440\u0438");
  EXPECT_EQ(text("\u00f0\u0178\u02dc\u20ac"), "\U0001f600");
  // Plausible text is unchanged.
  EXPECT_EQ(text("\u00d1\u00b0 na\u00efve \u00c9\u00bb r\u00e9sum\u00e9 \u00ab\u00e0\u00bb"),
            "\u00d1\u00b0 na\u00efve \u00c9\u00bb r\u00e9sum\u00e9 \u00ab\u00e0\u00bb");
  EXPECT_EQ(reason(*stage, "\x01\x02"), "empty");
  const auto lines =
      make_stage("normalize", {{"fix_line_breaks", true}, {"normalization", std::string("NFKC")}});
  EXPECT_EQ(apply_stage(*lines, "a\r\nb\rc\u2028d\u00b2").text, "a\nb\nc\nd2");
  std::string out = "untouched";
  EXPECT_FALSE(normalize_text("na\u00efve \u4e2d \u2019", "NFC", out));
  EXPECT_FALSE(repair("plain", {}, out));
  EXPECT_EQ(out, "untouched");
}

TEST(Language, Cld2) {
  const auto stage = make_stage("language");
  const std::string english =
      "The quick brown fox jumps over the lazy dog, and then it sleeps for the rest of the afternoon in the "
      "sun.";
  const std::string german =
      "Der schnelle braune Fuchs springt über den faulen Hund und schläft dann den ganzen Nachmittag in der "
      "Sonne.";
  StageStats stats(stage->metrics());
  EXPECT_EQ(apply_stage(*stage, english, {}, &stats).reason, "");
  EXPECT_EQ(apply_stage(*stage, german, {}, &stats).reason, "language");
  EXPECT_EQ(apply_stage(*stage, "", {}, &stats).reason, "language");
  EXPECT_EQ(stats.counters().at("language_en"), 1);
  EXPECT_EQ(stats.counters().at("language_de"), 1);
  EXPECT_EQ(stats.counters().at("language_unknown"), 1);
  EXPECT_EQ(reason(*make_stage("language", {{"languages", Strings{"fr", "de"}}}), german), "");
  EXPECT_EQ(reason(*make_stage("language", {{"languages", Strings{}}}), german), "");
  EXPECT_EQ(reason(*make_stage("language", {{"label_only", true}}), german), "");
}

// The model and its predictions: tools/golden/make_fasttext.py.
TEST(Language, FasttextModel) {
  const std::string model = STRATA_TEST_DATA "/filter/two_languages.bin";
  const auto stage = make_stage("language", {{"model", model}});
  EXPECT_EQ(reason(*stage, "the of and that\nhave been there"), "");
  EXPECT_EQ(reason(*stage, "der die und das nicht"), "language");
  const auto all = make_stage("language", {{"model", model}, {"languages", Strings{}}});
  EXPECT_EQ(reason(*all, "der die und das nicht"), "");
  EXPECT_EQ(reason(*all, "the die of das"), "language");  // neither reaches the threshold
}

TEST(FasttextQuality, LabelsAndScores) {
  const std::string model = STRATA_TEST_DATA "/filter/two_languages.bin";
  const auto keep = make_stage(
      "fasttext_quality",
      {{"model", model}, {"keep_labels", Strings{"en:0.9"}}, {"newline_replacement", std::string(" ")}});
  EXPECT_EQ(reason(*keep, " the of and that\nhave been there "), "");
  EXPECT_EQ(reason(*keep, "der die und das nicht"), "fasttext_quality");
  EXPECT_EQ(reason(*keep, " \n"), "empty");
  const auto remove =
      make_stage("fasttext_quality", {{"model", model}, {"remove_labels", Strings{"de:0.9"}}});
  EXPECT_EQ(reason(*remove, "der die und das nicht"), "fasttext_quality");
  EXPECT_EQ(reason(*remove, "the die of das"), "");
  EXPECT_THROW(make_stage("fasttext_quality", {{"model", model}}), ConfigError);
  EXPECT_THROW(make_stage("fasttext_quality", {{"model", model}, {"keep_labels", Strings{"fr:0.9"}}}),
               ConfigError);
  EXPECT_THROW(make_stage("fasttext_quality", {{"model", std::string(STRATA_TEST_DATA "/filter/pii.jsonl")},
                                               {"keep_labels", Strings{"en:0.9"}}}),
               DataError);
}

TEST_F(WithFile, UrlBlocklist) {
  write("domains", "# bad ones\nBAD.com\nsub.Good.org\nnaughty.co.uk\n");
  const auto stage = make_stage("url_blocklist",
                                {{"domains_file", std::string("domains")},
                                 {"extra_urls", Strings{"http://fine.org/no"}},
                                 {"banned_words", Strings{"Casino"}},
                                 {"soft_banned_words", Strings{"free", "win", "cash"}},
                                 {"banned_subwords", Strings{"gamb-ling"}}},
                                folder_);
  const auto of = [&](const std::string& url) {
    Document document;
    document.fields = R"("url":")" + url + "\"";
    return apply_stage(*stage, "text", document).reason;
  };
  EXPECT_EQ(of("http://bad.com/x"), "domain");
  EXPECT_EQ(of("https://user@www.bad.com:8080/x"), "domain");
  EXPECT_EQ(of("http://sub.good.org/"), "subdomain");
  EXPECT_EQ(of("http://other.good.org/"), "");
  EXPECT_EQ(of("http://www.naughty.co.uk/"), "domain");
  EXPECT_EQ(of("http://nice.co.uk/"), "");
  EXPECT_EQ(of("http://fine.org/no"), "url");
  EXPECT_EQ(of("http://fine.org/casino-1"), "hard_blacklisted");
  EXPECT_EQ(of("http://fine.org/CASINO"), "hard_blacklisted");
  EXPECT_EQ(of("HTTP://FINE.org/no"), "url");
  EXPECT_EQ(of("http://fine.org/NO"), "");  // paths keep their case
  EXPECT_EQ(of("http://fine.org/free/x"), "");
  EXPECT_EQ(of("http://fine.org/free/win"), "soft_blacklisted");
  EXPECT_EQ(of("http://fine.org/onlineGamb_ling1"), "blacklisted_subword");
  StageStats stats(stage->metrics());
  EXPECT_EQ(apply_stage(*stage, "no URL", {}, &stats).reason, "");
  EXPECT_EQ(stats.counters().at("no_url"), 1);
}

// The message names the nearest known language.
TEST(Languages, RejectsUnknownLanguages) {
  const auto error_of = [](const std::string& kind, const std::string& parameter, StageValue value) {
    try {
      make_stage(kind, {{"banned_words", Strings{"bad"}}, {parameter, std::move(value)}});
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(error_of("word_blocklist", "default_language", std::string("eng")),
              HasSubstr("perhaps \"en\""));
  EXPECT_EQ(error_of("word_blocklist", "default_language", std::string("zh")), "");
  try {
    make_stage("language", {{"languages", Strings{"de", "EN"}}});
    ADD_FAILURE() << "EN was accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("[language] languages: found \"EN\""));
    EXPECT_THAT(error.what(), HasSubstr("perhaps \"en\""));
  }
  EXPECT_NO_THROW(make_stage("language", {{"languages", Strings{"de", "ja", "zh-Hant"}}}));
  const std::string model = STRATA_TEST_DATA "/filter/two_languages.bin";
  EXPECT_NO_THROW(make_stage("language", {{"languages", Strings{"de"}}, {"model", model}}));
  EXPECT_THROW(make_stage("language", {{"languages", Strings{"ja"}}, {"model", model}}), ConfigError);
}

TEST_F(WithFile, WordBlocklist) {
  write("words", "Bad\nVERY nasty\nö\n2g1c\n");
  const auto stage = make_stage("word_blocklist", {{"words_file", std::string("words")}}, folder_);
  const std::string dropped = "document_removed_with_badwords";
  for (const std::string text : {"bad", "so BAD.", "a\nbad\n", "it is very Nasty!", "Ö", "x ö y", "(2g1c)"})
    EXPECT_EQ(reason(*stage, text), dropped) << text;
  for (const std::string text : {"", "badly", "_bad", "bad2", "very  nasty", "fünf öl", "2g1c2", "badé"})
    EXPECT_EQ(reason(*stage, text), "") << text;
  const auto inside = make_stage("word_blocklist",
                                 {{"banned_words", Strings{"悪"}}, {"default_language", std::string("ja")}});
  EXPECT_EQ(reason(*inside, "これは悪い"), dropped);
  const auto some = make_stage("word_blocklist", {{"banned_words", Strings{"bad"}}, {"keep_fraction", 0.5}});
  int kept = 0;
  for (int i = 0; i < 400; ++i) kept += reason(*some, "bad " + std::to_string(i)).empty();
  EXPECT_GT(kept, 140);
  EXPECT_LT(kept, 260);
}

TEST(LineCorrections, RemovesLinesAndDocuments) {
  const auto stage = make_stage("line_corrections", {{"max_removed_word_fraction", 1.0}});
  const auto text = [&](const std::string& in) { return apply_stage(*stage, in).text; };
  EXPECT_EQ(text("One plain line.\n\nAnother one here."), "One plain line.\n\nAnother one here.");
  EXPECT_EQ(text("keep this\n12 345\nALL THE CAPITALS\n3 likes\nHome\n* * *\nkeep that"),
            "keep this\nkeep that");
  EXPECT_EQ(text("keep this\nA short teaser Read more...\nSign in to comment\n2 items in cart\nkeep that"),
            "keep this\nA short teaser\nto comment\nkeep that");
  EXPECT_EQ(reason(*stage, "12\n13"), "empty");
  const auto strict = make_stage("line_corrections");
  EXPECT_EQ(reason(*strict, "a few words\nHome"), "too_many_corrections");
  EXPECT_EQ(reason(*strict, "a few words"), "");
}

TEST_F(WithFile, Decontaminate) {
  write(
      "quiz.jsonl",
      R"({"query": "What is the capital of the small country of Liechtenstein in Europe?", "label": "Vaduz is its capital"})"
      "\n\n"
      R"({"text": "one two three four five six seven eight nine ten eleven twelve thirteen"})"
      "\n");
  write("plain.txt", "The cat sat on the mat and then the dog came in to look at it\n");
  const auto stage = make_stage("decontaminate", {{"files", Strings{"quiz.jsonl", "plain.txt"}}}, folder_);
  StageStats stats(stage->metrics());
  const auto of = [&](const std::string& text) { return apply_stage(*stage, text, {}, &stats).reason; };
  EXPECT_EQ(of("x two THREE, four five six seven eight nine ten eleven twelve - thirteen y"), "contaminated");
  EXPECT_EQ(of("two three four five six seven eight nine ten eleven twelve"), "");
  EXPECT_EQ(of("so: the cat sat on the mat and then the dog came in!"), "contaminated");
  // Matches may cross from query to label, but must not be only in the query.
  EXPECT_EQ(of("the capital of the small country of liechtenstein in europe vaduz is"), "contaminated");
  EXPECT_EQ(of("what is the capital of the small country of liechtenstein in europe"), "");
  EXPECT_EQ(of(""), "");
  EXPECT_EQ(stats.counters().at("contaminated_quiz"), 2);
  EXPECT_EQ(stats.counters().at("contaminated_plain"), 1);
  const auto queries =
      make_stage("decontaminate", {{"files", Strings{"quiz.jsonl"}}, {"find_query_ngrams", true}}, folder_);
  EXPECT_EQ(reason(*queries, "what is the capital of the small country of liechtenstein in europe"),
            "contaminated");
  // N-grams that can never be found, and lists without entries, are errors.
  EXPECT_THROW(
      make_stage("decontaminate", {{"files", Strings{"plain.txt"}}, {"n_grams", int64_t{50}}}, folder_),
      ConfigError);
  write("bad.jsonl", "{\"other\": 1}\n");
  EXPECT_THROW(make_stage("decontaminate", {{"files", Strings{"bad.jsonl"}}}, folder_), DataError);
  EXPECT_THROW(make_stage("decontaminate", {{"files", Strings{"absent"}}}, folder_), ConfigError);
}

}  // namespace
}  // namespace strata::data
