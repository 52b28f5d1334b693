#include "data/build/engine.h"

#include <set>

#include "base/json.h"
#include "base/parallel.h"
#include "data/build/build_fixture.h"
#include "data/build/finish.h"
#include "data/tokens/token_corpus.h"
#include "fixtures/child_process.h"
#include "fixtures/faulty_file_system.h"

namespace strata::data {
namespace {

TEST(BuildEngine, EveryRecordIsKeptOrAudited) {
  BuildFixture fixture;
  const BuildResult result = fixture.build();
  ASSERT_TRUE(result.finished);
  const auto kept = fixture.lines_of("documents");
  const auto audit = fixture.lines_of("audit");
  EXPECT_EQ(result.stats.rows[0].documents_in, 65);
  EXPECT_EQ(kept.size() + audit.size(), 65u);
  EXPECT_EQ(static_cast<int64_t>(kept.size()), result.stats.rows.back().documents_out);
  std::set<std::string> ids;
  for (const auto& line : kept) EXPECT_TRUE(ids.insert(line["id"]).second) << line;
  std::map<std::string, int> reasons;
  for (const auto& line : audit) {
    EXPECT_TRUE(ids.insert(line["id"]).second) << line;
    ++reasons[line["stage"].get<std::string>() + "/" + line["reason"].get<std::string>()];
    EXPECT_FALSE(line["file"].get<std::string>().empty());
    EXPECT_GT(line["line"].get<int64_t>(), 0);
  }
  EXPECT_EQ(reasons["read/invalid_json"], 1);
  EXPECT_EQ(reasons["read/null_text"], 1);
  EXPECT_EQ(reasons["read/no_text"], 1);
  EXPECT_EQ(reasons["gopher_quality/gopher_short_doc"], 1);
  EXPECT_EQ(reasons["minhash/near_duplicate"], 21);  // 20 pairs, and b's copy of document 0
}

TEST(BuildEngine, DuplicatesNameTheKeptDocument) {
  BuildFixture fixture;
  fixture.build();
  std::set<std::string> kept;
  for (const auto& line : fixture.lines_of("documents")) kept.insert(line["id"]);
  for (const auto& line : fixture.lines_of("audit")) {
    if (line["stage"] != "minhash") continue;
    ASSERT_TRUE(line.contains("duplicate_of")) << line;
    EXPECT_TRUE(kept.count(line["duplicate_of"])) << line;
  }
}

TEST(BuildEngine, NumericIdsStayNumbers) {
  BuildFixture fixture;
  const std::string text = BuildFixture::text_of(0);
  fixture.folder().write(
      "b.jsonl", dump_json(nlohmann::json{{"id", 7}, {"text", "A new one: " + text + text}}) + "\n" +
                     dump_json(nlohmann::json{{"id", "8"}, {"text", "A new one: " + text + text}}) + "\n");
  std::string recipe = BuildFixture::recipe();
  recipe.replace(recipe.find("path = \"a.jsonl\""), 16, "path = \"b.jsonl\"");
  fixture.build(recipe);
  const auto clusters = fixture.lines_of("clusters");
  ASSERT_EQ(clusters.size(), 1u);
  EXPECT_EQ(clusters[0]["kept"], 7);
  EXPECT_EQ(clusters[0]["dropped"], nlohmann::json::array({"8", 7, "8"}));
  for (const auto& line : fixture.lines_of("audit")) EXPECT_EQ(line["duplicate_of"], 7) << line;
}

// Each part reads some of it; together they read it once.
TEST(BuildEngine, CountsALineLongerThanAPartOnce) {
  BuildFixture fixture;
  std::string text;
  for (int i = 0; i < 100; ++i) text += BuildFixture::text_of(i);
  const std::string lines = "{\"text\":\"" + text + "\"}\n{\"text\":\"short\"}";
  const Path path = fixture.folder().write("a.jsonl", lines);
  fixture.folder().write("b.jsonl", "");
  const BuildResult result = fixture.build();
  EXPECT_EQ(result.stats.rows[0].documents_in, 2);
  EXPECT_EQ(result.stats.stored_bytes, static_cast<int64_t>(lines.size()));
}

TEST(BuildEngine, ClustersAgreeWithTheAudit) {
  BuildFixture fixture;
  fixture.build();
  std::map<std::string, std::set<std::string>> audited, listed;
  for (const auto& line : fixture.lines_of("audit"))
    if (line.contains("duplicate_of")) audited[line["duplicate_of"]].insert(line["id"]);
  int64_t before = 1000;
  for (const auto& line : fixture.lines_of("clusters")) {
    const auto dropped = line["dropped"].get<std::set<std::string>>();
    EXPECT_EQ(line["size"], dropped.size() + 1);
    EXPECT_LE(line["size"].get<int64_t>(), std::exchange(before, line["size"].get<int64_t>()));
    EXPECT_TRUE(listed.emplace(line["kept"], dropped).second) << line;
  }
  EXPECT_EQ(listed, audited);
  EXPECT_EQ(listed.size(), 20u);
}

TEST(BuildEngine, OtherFieldsAndLinesAreKept) {
  BuildFixture fixture;
  fixture.build();
  for (const auto& line : fixture.lines_of("documents")) {
    const std::string id = line["id"];
    if (id.starts_with("doc")) {
      EXPECT_EQ(line["n"], std::stoi(id.substr(3)));
      EXPECT_TRUE(
          line["text"].get<std::string>().starts_with(BuildFixture::text_of(line["n"].get<int>() / 3 * 3)) ||
          line["n"].get<int>() % 3 == 2);
    }
  }
  for (const auto& line : fixture.lines_of("audit")) {
    if (line["reason"] == "invalid_json") {
      EXPECT_EQ(line["id"], "a.jsonl:63");
    }
  }
}

TEST(BuildEngine, TokensFollowTheOrderOfDocuments) {
  BuildFixture fixture;
  const BuildResult result = fixture.build();
  const Tokenizer tokenizer = Tokenizer::load(fixture.folder() / "tokenizer.json");
  std::vector<int32_t> expected;
  for (const auto& line : fixture.lines_of("documents")) {
    tokenizer.encode(line["text"].get<std::string>(), expected);
    expected.push_back(*tokenizer.end_of_text_id());
  }
  const TokenCorpus corpus =
      open_token_corpus({(fixture.out() / "tokens").string()}, {.vocab_size = tokenizer.vocab_size()});
  std::vector<int32_t> found(static_cast<size_t>(corpus.tokens()));
  corpus.read(0, corpus.tokens(), found.data());
  EXPECT_EQ(found, expected);
  EXPECT_EQ(result.stats.tokens, corpus.tokens());
  EXPECT_EQ(static_cast<int64_t>(corpus.document_ends().size()), result.stats.rows.back().documents_out);
}

std::string shares(const std::string& recipe, const std::string& of_a) {
  std::string changed = recipe;
  changed.replace(changed.find("path = \"a.jsonl\""), 16, "path = \"a.jsonl\"\n" + of_a);
  return changed;
}

TEST(BuildEngine, WritesSourcesForTrainingNextToTheTokens) {
  BuildFixture fixture;
  const std::string recipe = shares(fixture.recipe(), "weight = 0.67\nmax_epochs = 3\nmax_tokens = 90000");
  fixture.build(recipe);
  const ConfigValue tree = read_toml(fixture.out() / kSourcesFile);
  EXPECT_EQ(read_file(fixture.out() / kTokenizerFile), read_file(fixture.folder() / "tokenizer.json"));
  const auto& rows = std::get<ConfigValue::Array>(tree.find("data")->find("source")->data);
  // All of b is a near duplicate of a; a source without tokens is omitted.
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(to_toml(rows[0]),
            "{ name = \"a\", path = [\"tokens/a.bin\"], weight = 0.67, max_epochs = 3, max_tokens = 90000 }");
  // Shares concern training: other shares change only the files that record them.
  auto before = fixture.files_of();
  EXPECT_TRUE(fixture.build(shares(fixture.recipe(), "weight = 2.5")).reused);
  auto after = fixture.files_of();
  EXPECT_NE(after["sources.toml"].find("weight = 2.5"), std::string::npos);
  EXPECT_NE(after["manifest.json"].find("\"weight\": 2.5"), std::string::npos);
  EXPECT_NE(after["report.html"], before["report.html"]);
  for (const char* name : {"sources.toml", "manifest.json", "report.html"}) {
    before.erase(name);
    after.erase(name);
  }
  EXPECT_TRUE(before == after);
  EXPECT_TRUE(fixture.build(recipe).reused);
  // A build without tokens removes the file.
  const std::string plain = recipe.substr(0, recipe.find("tokens = {"));
  run_build(*fixture.job(plain), *comm::single_process_world(), {.overwrite = true, .progress = {}});
  EXPECT_FALSE(std::filesystem::exists(fixture.out() / kSourcesFile));
  EXPECT_FALSE(std::filesystem::exists(fixture.out() / kTokenizerFile));
}

TEST(BuildEngine, WritesTokensInForeignFormats) {
  BuildFixture fixture;
  fixture.build();
  const auto tokens_of = [&] {
    const TokenCorpus corpus = open_token_corpus({(fixture.out() / "tokens").string()}, {.vocab_size = 400});
    std::vector<int32_t> ids(static_cast<size_t>(corpus.tokens()));
    corpus.read(0, corpus.tokens(), ids.data());
    return std::pair(ids, corpus.document_ends());
  };
  const auto expected = tokens_of();
  for (const char* format : {"megatron", "datatrove"}) {
    std::string recipe = fixture.recipe();
    recipe.replace(recipe.find("tokenizer.json\" }"), 17,
                   fmt::format("tokenizer.json\", format = \"{}\" }}", format));
    // Another format yields another result.
    EXPECT_THROW(fixture.build(recipe), ConfigError);
    std::filesystem::remove_all(fixture.out());
    fixture.build(recipe);
    EXPECT_TRUE(tokens_of() == expected) << format;
    const bool pair = std::string(format) == "megatron";
    EXPECT_EQ(std::filesystem::exists(fixture.out() / "tokens/a.idx"), pair);
    EXPECT_EQ(std::filesystem::exists(fixture.out() / "tokens/a.ds.metadata"), !pair);
    EXPECT_NE(read_file(fixture.out() / kSourcesFile).find(pair ? "tokens/a.bin" : "tokens/a.ds"),
              std::string::npos);
  }
}

TEST(BuildEngine, BytesDoNotDependOnWorkers) {
  BuildFixture fixture;
  fixture.build();
  const auto expected = fixture.files_of();
  EXPECT_GT(expected.size(), 10u);
  for (const int workers : {1, 2, 5}) {
    std::filesystem::remove_all(fixture.out());
    std::string recipe = fixture.recipe();
    recipe.replace(recipe.find("folder = \"out\""), 14,
                   fmt::format("folder = \"out\"\nworkers = {}", workers));
    fixture.build(recipe);
    fixture.expect_files(expected, fmt::format("{} workers", workers));
  }
}

TEST(BuildEngine, CompressedOutputsHaveTheSameContent) {
  BuildFixture fixture;
  fixture.build();
  const auto plain = fixture.files_of();
  for (const char* compression : {"gz", "zst"}) {
    std::filesystem::remove_all(fixture.out());
    fixture.build(fixture.recipe() + fmt::format("compression = \"{}\"\n", compression));
    for (const auto& [name, bytes] : plain) {
      if (!name.ends_with(".jsonl")) continue;
      const auto reader = open_records(fixture.out() / (name + "." + compression), "", {.text = "id"});
      Document document;
      std::string detail;
      size_t lines = 0;
      while (reader->next(document, detail) != ReadStatus::kEnd) ++lines;
      EXPECT_EQ(lines, static_cast<size_t>(std::count(bytes.begin(), bytes.end(), '\n'))) << name;
    }
  }
}

TEST(BuildEngine, FinishedBuildIsNotRepeated) {
  BuildFixture fixture;
  const BuildResult first = fixture.build();
  const auto before = fixture.files_of();
  const BuildResult second = fixture.build();
  EXPECT_TRUE(second.finished && second.reused);
  EXPECT_EQ(second.stats.to_json(), first.stats.to_json());
  fixture.expect_files(before, "again");
}

TEST(BuildEngine, ResultOfAnotherRecipeIsUnchanged) {
  BuildFixture fixture;
  fixture.build();
  const auto before = fixture.files_of();
  std::string other = fixture.recipe();
  other.replace(other.find("min_doc_words = 20"), 18, "min_doc_words = 10");
  expect_error(ErrorKind::kConfig, {"another recipe", "--force"}, [&] { fixture.build(other); });
  fixture.expect_files(before, "again");
  const auto job = fixture.job(other);
  EXPECT_TRUE(run_build(*job, *comm::single_process_world(), {.overwrite = true, .progress = {}}).finished);
  EXPECT_NE(fixture.files_of(), before);
}

// A folder that contains build.folder is read without it; folders that the build removes first are not input.
TEST(BuildEngine, DoesNotReadItsOwnOutput) {
  BuildFixture fixture;
  std::string around = fixture.recipe();
  around.replace(around.find("path = \"a.jsonl\""), 16, "path = [\"**/*.jsonl\"]");
  fixture.build(around);
  const auto before = fixture.files_of();
  EXPECT_TRUE(fixture.build(around).reused);
  fixture.expect_files(before, "again");
  std::string itself = fixture.recipe();
  itself.replace(itself.find("path = \"a.jsonl\""), 16, "path = \"out/documents/*\"");
  expect_error(ErrorKind::kConfig, {"source a", "out/documents/part-00000.jsonl", "another build.folder"},
               [&] { fixture.job(itself); });
  fixture.expect_files(before, "again");
}

TEST(BuildEngine, StopsAndResumes) {
  BuildFixture fixture;
  fixture.build();
  const auto expected = fixture.files_of();
  for (int after = 1; after < 12; ++after) {
    std::filesystem::remove_all(fixture.out());
    std::atomic<int> asked = 0;
    FaultyFileSystem plain;
    const auto job = fixture.job(fixture.recipe(), plain, [&] { return ++asked > after; });
    const BuildResult stopped = run_build(*job, *comm::single_process_world(), {});
    if (stopped.finished) continue;
    EXPECT_FALSE(std::filesystem::exists(fixture.out() / "manifest.json"));
    EXPECT_TRUE(fixture.build().finished);
    fixture.expect_files(expected, fmt::format("stopped after {}", after));
  }
}

TEST(BuildEngine, OnErrorStopNamesFileAndLine) {
  BuildFixture fixture;
  std::string recipe = fixture.recipe();
  recipe.replace(recipe.find("folder = \"out\""), 14, "folder = \"out\"\non_error = \"stop\"\nworkers = 1");
  expect_error(ErrorKind::kData, {"a.jsonl:62", "null_text"}, [&] { fixture.build(recipe); });
}

TEST(BuildEngine, RejectsTwoBuildsInOneFolder) {
  BuildFixture fixture;
  std::filesystem::create_directories(fixture.out());
  const FileLock lock(fixture.out() / ".lock");
  EXPECT_THROW(fixture.build(), ConfigError);
}

// Every call that writes fails or kills in turn; the build then resumes to the same bytes, and no file has a
// final name that a complete build would not have.
class BuildFaults : public testing::Test {
 protected:
  BuildFaults() { set_compute_threads(1); }  // a forked child has no pool of threads
  ~BuildFaults() override { set_compute_threads(available_processors()); }
  std::string one_worker() {
    std::string recipe = BuildFixture::recipe();
    return recipe.replace(recipe.find("folder = \"out\""), 14, "folder = \"out\"\nworkers = 1");
  }
  BuildFixture fixture_;
};

TEST_F(BuildFaults, FullDiskKeepsFinishedParts) {
  FaultyFileSystem counting;
  fixture_.build(one_worker(), counting);
  const auto expected = fixture_.files_of();
  int64_t failed = 0;
  for (int64_t at = 1; at <= counting.calls(); at += 17) {
    std::filesystem::remove_all(fixture_.out());
    FaultyFileSystem full({.kind = FaultKind::kDiskFull, .at = at});
    try {
      fixture_.build(one_worker(), full);
    } catch (const WorldError&) {
      ++failed;
    }
    EXPECT_TRUE(fixture_.build(one_worker()).finished);
    fixture_.expect_files(expected, fmt::format("call {}", at));
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(failed, 5);
}

TEST_F(BuildFaults, KilledBuildResumes) {
  FaultyFileSystem counting;
  fixture_.build(one_worker(), counting);
  const auto expected = fixture_.files_of();
  for (int64_t at = 1; at <= counting.calls(); at += 13) {
    std::filesystem::remove_all(fixture_.out());
    const int status = exit_code_of_child([&] {
      FaultyFileSystem killer({.kind = at % 2 ? FaultKind::kKillBefore : FaultKind::kKillAfter, .at = at});
      fixture_.build(one_worker(), killer);
    });
    ASSERT_EQ(status, FaultyFileSystem::kKilled) << at;
    EXPECT_TRUE(fixture_.build(one_worker()).finished);
    fixture_.expect_files(expected, fmt::format("call {}", at));
    ASSERT_FALSE(HasFailure());
  }
}

TEST(BuildReport, ShowsReasonsAndEscapesText) {
  BuildFixture fixture;
  fixture.folder().write("b.jsonl", "{\"text\":\"<script>alert(1)</script>\"}\n");
  fixture.build();
  const std::string html = read_file(fixture.out() / "report.html");
  for (const char* part : {"gopher_short_doc", "near_duplicate", "documents alike", "invalid_json",
                           "&lt;script&gt;alert", "<svg"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_EQ(html.find("http-equiv"), std::string::npos);
}

}  // namespace
}  // namespace strata::data
