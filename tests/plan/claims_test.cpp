// Published claims, recomputed: the checks of the reference's list of errata.
#include "plan/claims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/file.h"
#include "plan/published_runs.h"

namespace strata::planning {
namespace {

const std::vector<CheckedClaim>& all_claims() {
  static const std::vector<CheckedClaim> kClaims = check_claims(builtin_catalogue());
  return kClaims;
}

const CheckedClaim& claim(std::string_view id) {
  const auto found = std::find_if(all_claims().begin(), all_claims().end(),
                                  [&](const CheckedClaim& one) { return one.id == id; });
  if (found == all_claims().end()) throw std::out_of_range(std::string(id));
  return *found;
}

// The reference's figures, not those of this code.
TEST(Claims, ErrataOfTheGuides) {
  struct Row {
    const char* id;
    double low, high;  // follows from the claim's inputs
    Verdict verdict;
  };
  for (const Row& row : {
           Row{"kernel-speedup", 3.72, 3.72, Verdict::kOff},
           Row{"layers", 61, 61, Verdict::kOff},
           Row{"mi325x-mfu", 0.30, 0.34, Verdict::kOff},
           Row{"llama4-405b-mfu", 3.8, 3.84, Verdict::kImpossible},
           Row{"speed-and-mfu", 125, 125, Verdict::kOff},
           Row{"power-laws", 1.195, 1.195, Verdict::kOff},
           Row{"llama2-flops", 8.4e22, 8.4e22, Verdict::kRight},
           Row{"v100-peak", 125, 125, Verdict::kOff},
           Row{"a10g-peak", 70, 70, Verdict::kOff},
           Row{"gpt3-cost", 4.6e6, 4.7e6, Verdict::kRight},
           Row{"a100-price", 2033, 2033, Verdict::kOff},
           Row{"memory-70b", 35.0, 35.0, Verdict::kOff},
           Row{"memory-70b-zero", 12.0, 12.0, Verdict::kOff},
           Row{"tokens-70b", 182857, 182857, Verdict::kRight},
           Row{"chinchilla-params", 70.7e9, 70.7e9, Verdict::kOff},
           Row{"chinchilla-tokens", 1.41e12, 1.41e12, Verdict::kOff},
           Row{"llama-mfu-16k", 0.404, 0.41, Verdict::kOff},
           Row{"aim-90", 0.71, 0.72, Verdict::kOff},
           Row{"fsdp-crossover", 1236, 1236, Verdict::kOff},
           Row{"batch-floor", 1000, 1000, Verdict::kRight},
       }) {
    const CheckedClaim& found = claim(row.id);
    EXPECT_GE(found.computed.high, row.low * 0.99) << row.id;
    EXPECT_LE(found.computed.low, row.high * 1.01) << row.id;
    EXPECT_EQ(found.verdict, row.verdict) << row.id << " " << to_string(found.verdict);
    EXPECT_NEAR(found.ratio * found.computed.value, found.published, 1e-9 * found.published) << row.id;
  }
  EXPECT_EQ(claim("scaling-base").verdict, Verdict::kConflict);
  EXPECT_NEAR(claim("llama4-405b-mfu").computed.value * 989, 3797, 1) << "TFLOP/s a device";
  EXPECT_NEAR(claim("a100-price").ratio, 10, 0.1);
}

TEST(Claims, ReportsThatAreRight) {
  for (const char* id :
       {"dsv3-speed", "dsv3-hours", "dsv3-cost", "llama-overall", "llama-in-run", "gpt3-compute",
        "llama-energy", "llama-co2", "palm-mfu", "mttf-16k", "ettr-1k", "llama-mttf", "opt-ettr"})
    EXPECT_EQ(claim(id).verdict, Verdict::kRight) << id << " " << claim(id).computed.value;
  EXPECT_NEAR(claim("gpt3-compute").computed.value, 3646, 1);
  EXPECT_NEAR(claim("dsv3-speed").computed.value, 1543, 0.5);
  EXPECT_NEAR(claim("llama-overall").computed.value / claim("llama-in-run").computed.value, 0.83, 0.005);
  // Jobs fail more often than their hosts predict.
  EXPECT_NEAR(claim("mttf-1k").computed.value, 28.8, 0.05);
  EXPECT_EQ(claim("mttf-1k").verdict, Verdict::kOff);
  // Both values of a corrected publication.
  EXPECT_EQ(claim("chinchilla-40b").verdict, Verdict::kOff);
  EXPECT_NEAR(claim("chinchilla-40b").computed.value / 1e9, 72.3, 0.1);
}

// The highest MFU that a claim is compared with is that of the table.
TEST(Claims, HighestMfuIsThatOfThePublishedRuns) {
  double highest = 0.0;
  for (const PublishedRun& run : read_runs(Path(STRATA_PLANNING_DATA) / "published_runs.csv")) {
    const auto flagged = [&](const char* flag) {
      return std::find(run.flags.begin(), run.flags.end(), flag) != run.flags.end();
    };
    if (run.mfu && !flagged("mfu_wrong") && !flagged("inconsistent") && !flagged("hfu"))
      highest = std::max(highest, *run.mfu);
  }
  EXPECT_NEAR(claim("aim-90").computed.value, highest, 1e-4);
}

TEST(Claims, TextAndJsonStateEveryClaim) {
  const std::string text = to_text(all_claims());
  const auto json = json_of(all_claims());
  ASSERT_EQ(json["claims"].size(), all_claims().size());
  std::set<std::string_view> ids, sources;
  for (const CheckedClaim& one : all_claims()) {
    EXPECT_TRUE(ids.insert(one.id).second) << one.id << " twice";
    sources.insert(one.source);
    EXPECT_NE(text.find(one.claim), std::string::npos) << one.id;
    EXPECT_FALSE(one.formula.empty());
  }
  for (const ClaimSource& source : claim_sources()) EXPECT_EQ(sources.count(source.name), 1u) << source.name;
  EXPECT_EQ(sources.size(), claim_sources().size());
  EXPECT_EQ(json["right"].get<size_t>() + json["off"].get<size_t>() + json["impossible"].get<size_t>() +
                json["conflict"].get<size_t>(),
            all_claims().size());
  EXPECT_EQ(json["impossible"], 1);
}

}  // namespace
}  // namespace strata::planning
