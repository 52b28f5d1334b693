#include "data/build/inspect.h"

#include <gtest/gtest.h>

#include "fixtures/temporary_folder.h"

#include "base/json.h"

namespace strata::data {
namespace {

nlohmann::json inspected(const Path& path, int64_t limit = 5) {
  return parse_json<nlohmann::json>(inspect({.path = path, .tokenizer = {}, .limit = limit, .json = true}));
}

TEST(Inspect, RecordsAreCountedAndTheFirstShown) {
  const TemporaryFolder folder;
  const Path path =
      folder.write("a.jsonl", "{\"id\":\"x\",\"text\":\"one\\u001b[2J\"}\n{\"text\":\"two\"}\nno json\n");
  const auto json = inspected(path, 1);
  EXPECT_EQ(json["documents"], 2);
  EXPECT_EQ(json["not_read"]["invalid_json"], 1);
  ASSERT_EQ(json["first"].size(), 1u);
  EXPECT_EQ(json["first"][0]["id"], "x");
  const std::string text = inspect({.path = path, .tokenizer = {}});
  EXPECT_NE(text.find("one\\x1b[2J"), std::string::npos) << text;  // no control characters reach the terminal
}

// The pair of tools/golden/make_token_files.py: document d has d * 5 % 13 tokens, the empty one is omitted.
TEST(Inspect, MegatronIndexWithAndWithoutTokens) {
  const TemporaryFolder folder;
  const Path golden = Path(STRATA_TEST_DATA) / "token_files";
  const Path index = folder.write("a.idx", read_file(golden / "narrow_pair.idx"));
  const auto alone = inspected(index, 2);
  EXPECT_EQ(alone["dtype"], "u16");
  EXPECT_EQ(alone["documents"], 11);
  EXPECT_EQ(alone["sequences"], 11);
  EXPECT_EQ(alone["tokens"], 70);
  EXPECT_EQ(alone["shortest"], 1);
  EXPECT_EQ(alone["longest"], 12);
  EXPECT_EQ(alone["first_ends"], parse_json<nlohmann::json>("[5, 15]"));
  EXPECT_EQ(alone["ids"], "");
  EXPECT_NE(inspect({.path = index, .tokenizer = {}}).find("there is no"), std::string::npos);
  folder.write("a.bin", read_file(golden / "narrow_pair.bin"));
  const std::string text = inspect({.path = index, .tokenizer = {}, .limit = 1});
  EXPECT_NE(text.find("0 7 14 21 28\n"), std::string::npos) << text;
  EXPECT_NE(text.find("70 tokens of u16, 11 sequences, 11 documents of 1 to 12 tokens"), std::string::npos)
      << text;
  EXPECT_THROW(inspected(folder.write("b.idx", "MMIDIDX")), DataError);
}

}  // namespace
}  // namespace strata::data
