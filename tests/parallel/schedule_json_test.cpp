// Schedules in files: round trips and rejected files.
#include "parallel/schedule_json.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "parallel/schedules.h"

namespace strata::parallel {
namespace {

TEST(ScheduleJson, AsDocumented) {
  EXPECT_EQ(to_json(make_schedule({"zb_h1", 1, 1})),
            R"({"schedule":"zb_h1","stages":1,"microbatches":1,"ranks":[[["F",0,0],["I",0,0],["W",0,0]]]})");
  EXPECT_EQ(to_json(make_schedule({"dualpipev", 1, 2})),
            R"({"schedule":"dualpipev","stages":2,"microbatches":2,"ranks":[[["F",0,0],["F",0,1],["F",1,0],)"
            R"(["B",0,1],["FB",1,1,0,0],["B",1,1],["I",1,0],["W",1,0]]]})");
}

TEST(ScheduleJson, RoundTrip) {
  for (const ScheduleKind& kind : schedule_kinds()) {
    for (const int32_t ranks : {1, 3, 4}) {
      Schedule schedule = make_schedule({std::string(kind.name), ranks, 2 * ranks, kind.chunks == 0 ? 3 : 1});
      schedule.name = "a \"file\"";
      EXPECT_EQ(parse_schedule(to_json(schedule), "f.json"), schedule)
          << kind.name << ", " << ranks << " ranks";
    }
  }
}

std::string refusal(const std::string& json) {
  try {
    parse_schedule(json, "f.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "taken";
}

std::string with_ranks(const std::string& ranks) {
  return R"({"schedule":"s","stages":1,"microbatches":1,"ranks":)" + ranks + "}";
}

TEST(ScheduleJson, RejectsOtherJson) {
  EXPECT_EQ(refusal(with_ranks(R"([[["F",0,0],["B",0,0]]])")), "taken");
  const struct {
    std::string json, message;
  } cases[] = {
      {"[", "[f.json] invalid JSON"},
      {"[]", "found [], expected an object"},
      {R"({"stages":1,"microbatches":1,"ranks":[]})", "the key schedule is missing"},
      {R"({"schedule":1,"stages":1,"microbatches":1,"ranks":[]})", "schedule: found 1, expected a name"},
      {R"({"schedule":"s","steps":1})", "found the key \"steps\""},
      {R"({"schedule":"s","stages":0,"microbatches":1,"ranks":[[]]})", "stages: found 0"},
      {R"({"schedule":"s","stages":1.5,"microbatches":1,"ranks":[[]]})", "stages: found 1.5"},
      {R"({"schedule":"s","stages":1,"microbatches":4294967297,"ranks":[[]]})",
       "microbatches: found 4294967297"},
      {R"({"schedule":"s","stages":2147483647,"microbatches":2147483647,"ranks":[[["F",0,0]]]})",
       "found 1 actions, too few"},
      {with_ranks("{}"), "ranks: found {}"},
      {with_ranks("[3]"), "rank 0: found 3"},
      {with_ranks(R"([[["F",0,0],["C",0,0]]])"), R"(rank 0, action 1: found ["C",0,0], expected ["F")"},
      {with_ranks(R"([[["F",0,0],["B",0]]])"), "rank 0, action 1: found"},
      {with_ranks(R"([[["F",0,0],["B",-1,0]]])"), "rank 0, action 1: found"},
      {with_ranks(R"([[["F",0,0],["FB",0,0,0]]])"), "rank 0, action 1: found"},
      {with_ranks(R"([[["F",0,0],["B",0,1]]])"), "is out of range"},
      {with_ranks(R"([[["F",0,0]],[["B",0,0]]])"), "rank 1, action 0 (B0@0): stage 0 is on rank 0"},
      {with_ranks(R"([[["F",0,0],["B",0,0]],[]])"), "rank 1 has no actions"},
      {with_ranks(R"([[["B",0,0],["F",0,0]]])"), "needs F0@0"},
      {R"({"schedule":"s","stages":2,"microbatches":1,"ranks":[[["F",0,0],["B",0,0]]]})",
       "stage 1 has no action on any rank"},
  };
  for (const auto& each : cases)
    EXPECT_NE(refusal(each.json).find(each.message), std::string::npos) << refusal(each.json);
}

}  // namespace
}  // namespace strata::parallel
