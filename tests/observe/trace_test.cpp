#include "observe/trace.h"

#include <gtest/gtest.h>

#include <vector>

#include "fixtures/scratch_folder.h"

#include "base/json.h"

namespace strata::observe {
namespace {

TEST(Trace, ParsesBackAsCompleteEvents) {
  const ScratchFolder folder;
  const std::vector<TraceEvent> events = {{"gemm \"qkv\" \\", "gemm", 0.5, 1234.5678, 0},
                                          {"attention\n", "attention", 1e9 + 0.25, 10, 3}};
  const std::vector<std::string> threads = {"compute", "<loader>"};
  write_trace(posix_file_system(), folder / "trace.json", events, "run", threads);
  const auto trace = parse_json<nlohmann::json>(read_file(folder / "trace.json"));
  const auto& records = trace["traceEvents"];
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[0]["args"]["name"], "run");
  EXPECT_EQ(records[2]["args"]["name"], "<loader>");
  EXPECT_EQ(records[2]["tid"], 1);
  EXPECT_EQ(records[3]["name"], events[0].name);
  EXPECT_EQ(records[3]["ph"], "X");
  EXPECT_EQ(records[3]["cat"], "gemm");
  EXPECT_NEAR(records[3]["dur"].get<double>(), 1234.5678, 1e-3);
  EXPECT_NEAR(records[4]["ts"].get<double>(), 1e9 + 0.25, 1e-3);
  EXPECT_EQ(records[4]["tid"], 3);
}

TEST(Trace, WithoutEventsIsStillATrace) {
  const auto trace = parse_json<nlohmann::json>(trace_json({}, "empty"));
  EXPECT_EQ(trace["traceEvents"].size(), 1u);
}

}  // namespace
}  // namespace strata::observe
