// Checks the table of findings in docs/diagnosis.md, or writes it with STRATA_WRITE_DIAGNOSIS_PAGE=1.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "diagnosis/diagnosis.h"
#include "diagnosis/findings.h"
#include "fixtures/scratch_folder.h"

namespace strata::diagnosis {
namespace {

TEST(DiagnosisPage, HasTheCurrentTable) {
  std::string table = "| finding | reported if |\n| --- | --- |\n";
  for (const FindingKind& kind : finding_kinds())
    table += fmt::format("| `{}` | {} |\n", kind.name, kind.meaning);
  const Path path = STRATA_DIAGNOSIS_PAGE;
  std::string text = read_file(path);
  const size_t begin = text.find("| finding |");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = text.find("\n\n", begin) + 1;
  if (std::getenv("STRATA_WRITE_DIAGNOSIS_PAGE") != nullptr) {
    text.replace(begin, end - begin, table);
    put_file(path, text);
    return;
  }
  EXPECT_EQ(text.substr(begin, end - begin), table) << "run this test with STRATA_WRITE_DIAGNOSIS_PAGE=1";
}

}  // namespace
}  // namespace strata::diagnosis
