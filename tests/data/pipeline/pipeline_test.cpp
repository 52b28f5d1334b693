#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "data/pipeline/document.h"
#include "data/pipeline/stage_stats.h"

namespace strata::data {
namespace {

TEST(DocumentTest, FindsStringFields) {
  Document document;
  document.fields = R"("url":"http:\/\/a.b\/\u00e9","n":3,"x":{"url":"no"})";
  EXPECT_EQ(string_field(document, "url"), "http://a.b/\xc3\xa9");
  EXPECT_EQ(string_field(document, "n"), "");
  EXPECT_EQ(string_field(document, "absent"), "");
  // Numbers beyond a double and lone surrogates in other fields; the last of two equal keys counts.
  document.fields = R"("n":1e999,"s":"\ud800","url":"first","m":123456789012345678901234567890,"url":"last")";
  EXPECT_EQ(string_field(document, "url"), "last");
  document.fields.clear();
  EXPECT_EQ(string_field(document, "url"), "");
}

TEST(DocumentTest, EveryReasonHasAName) {
  for (int status = static_cast<int>(ReadStatus::kInvalidJson);
       status <= static_cast<int>(ReadStatus::kDamaged); ++status)
    EXPECT_FALSE(read_reason(static_cast<ReadStatus>(status)).empty()) << status;
}

TEST(StageStatsTest, BinsContainEveryValue) {
  StageStats stats({{"x", 0, 1, 0.3, false}});
  for (const double value : {-5.0, 0.0, 0.0199, 0.02, 0.999, 1.0, 7.0, std::nan("")}) stats.record(0, value);
  const auto& bins = stats.histograms()[0].bins;
  EXPECT_EQ(bins[0], 4);
  EXPECT_EQ(bins[1], 1);
  EXPECT_EQ(bins[49], 3);
}

TEST(StageStatsTest, SumsAndRoundTrips) {
  StageStats a({{"x", 0, 10, 3, true}}), b({{"x", 0, 10, 3, true}}), sum;
  a.record(0, 1);
  a.count("lines", 2);
  b.record(0, 1);
  b.record(0, 9);
  b.count("lines");
  b.count("other");
  sum.add(a);
  sum.add(b);
  const StageStats read = StageStats::from_json(sum.to_json());
  EXPECT_EQ(read.to_json(), sum.to_json());
  EXPECT_EQ(read.histograms()[0].bins[5], 2);
  EXPECT_EQ(read.histograms()[0].bins[45], 1);
  EXPECT_EQ(read.counters().at("lines"), 3);
  EXPECT_EQ(read.counters().at("other"), 1);
  EXPECT_THROW(StageStats::from_json("{}"), DataError);
  EXPECT_THROW(StageStats::from_json("{\"metrics\":3"), DataError);
}

}  // namespace
}  // namespace strata::data
