// Compares every format with Python's readers: tools/golden/make_input_golden.py.
#include <gtest/gtest.h>

#include "base/json.h"
#include "data/input/arrow_support.h"
#include "data/input/read_records.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

using Json = nlohmann::json;

class InputGolden : public testing::TestWithParam<const char*> {};

void expect_golden(const std::string& name, size_t count) {
  const Path path = Path(STRATA_TEST_DATA) / "input" / name;
  const Json expected = parse_json<Json>(read_file(path.string() + ".json"));
  const auto records = read_records(path);
  ASSERT_EQ(records.size(), std::max(count, expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto& [status, document, detail] = records[i];
    const Json& record = expected[i];
    SCOPED_TRACE(record.dump(-1, ' ', true));
    EXPECT_EQ(read_reason(status), record["status"].get<std::string>()) << detail;
    EXPECT_EQ(document.id, record["id"].get<std::string>());
    EXPECT_EQ(document.id_is_json, record.value("id_is_json", false));
    EXPECT_EQ(document.line, record["line"].get<int64_t>());
    EXPECT_EQ(detail.empty(), status == ReadStatus::kDocument);
    if (status != ReadStatus::kDocument) continue;
    EXPECT_EQ(document.text, record["text"].get<std::string>());
    Json fields = parse_json_or_discard<Json>("{" + document.fields + "}");
    if (fields.is_discarded()) continue;  // a lone surrogate, unchanged
    fields.erase("big");
    EXPECT_EQ(fields, record["fields"]);
  }
}

TEST_P(InputGolden, AsPythonReadsIt) {
  expect_golden(GetParam(), 0);
}

// The files contain more rows than the list next to them.
TEST(ArrowGolden, ParquetAndArrowAsPythonReadsThem) {
  const Path folder = Path(STRATA_TEST_DATA) / "input";
  for (const char* name : {"rows.parquet", "rows.feather", "rows.arrow"}) {
    if (has_arrow()) {
      expect_golden(name, 1000);
    } else {
      expect_error(ErrorKind::kConfig, {name, "Apache Arrow", "make arrow"},
                   [&] { read_records(folder / name); });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, InputGolden,
                         testing::Values("hard.jsonl", "crlf.jsonl", "members.jsonl.gz", "frames.jsonl.zst",
                                         "table.csv", "table.tsv", "pages.warc.gz", "pages.wet.gz"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) {
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace strata::data
