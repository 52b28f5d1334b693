#include "ops/statistics/statistics.h"

#include <cmath>
#include <limits>

#include "ops/cases.h"

namespace strata::device {

using namespace op_rows;

namespace {

// Zeros, infinities, NaN, and numbers below the smallest normal one, between others.
Operand with_odd_numbers(Shape shape, std::vector<int64_t> segments = {}) {
  Operand operand = act(shape, std::move(segments));
  operand.content = [](int64_t i) {
    switch (i % 17) {
      case 3:
        return 0.0;
      case 5:
        return i % 2 == 0 ? 0x1p-130 : -0x1p-128;
      case 11:
        return std::numeric_limits<double>::quiet_NaN();
      case 13:
        return i % 2 == 0 ? std::numeric_limits<double>::infinity()
                          : -std::numeric_limits<double>::infinity();
      default:
        return 0.25 * static_cast<double>(i % 23 - 11);
    }
  };
  return operand;
}

Operand i64_words(int64_t n) {
  return {.dtype = DType::kI64, .shape = {n}, .content = [](int64_t i) {
            return std::ldexp(static_cast<double>(i * 977 + 1), 30);
          }};
}

constexpr std::string_view kWatching = "off in most steps, one pass in others";

}  // namespace

template <>
void cases<ops::Statistics>(Cases& to) {
  const CaseOptions<ops::Statistics> options{.replicated_only = true};
  const Operand on = i64_of(4 + 1);
  to.add<ops::Statistics>("statistics", {.x = act({7, 33}), .mask = on}, {}, options);
  to.add<ops::Statistics>("statistics_odd", {.x = with_odd_numbers({11, 37}), .mask = on},
                          {.group = 2, .largest = 2.5}, options);
  to.add<ops::Statistics>("statistics_blocks", {.x = act({2, 65537}), .mask = on}, {}, options);
  to.add<ops::Statistics>("statistics_rows", {.x = with_odd_numbers({13, 24}), .mask = on}, {.row = 8},
                          options);
  to.add<ops::Statistics>("statistics_part", {.x = with_odd_numbers({9, 40}, {24, 8, 8}), .mask = on},
                          {.part = 1, .row = 4}, options);
  to.add<ops::Statistics>("statistics_part_of_many", {.x = act({3000, 40}, {24, 8, 8}), .mask = on},
                          {.part = 0}, options);
  CaseOptions<ops::Statistics> off = options;
  off.opaque = {"table"};
  to.add<ops::Statistics>("statistics_off", {.x = act({7, 33}), .mask = on}, {.group = 1}, off);
  to.untimed<ops::Statistics>(kWatching);
}

template <>
void cases<ops::TakeSample>(Cases& to) {
  const CaseOptions<ops::TakeSample> options{.replicated_only = true};
  to.add<ops::TakeSample>("take_sample", {.x = f32({5, 7}), .mask = i64_of(1)}, {}, options);
  to.add<ops::TakeSample>("take_sample_of_many", {.x = f32({3 * ops::kMostSampled + 5}), .mask = i64_of(2)},
                          {.group = 1}, options);
  to.untimed<ops::TakeSample>(kFewNumbers);
}

template <>
void cases<ops::SampleChange>(Cases& to) {
  const CaseOptions<ops::SampleChange> options{.replicated_only = true};
  to.add<ops::SampleChange>("sample_change", {.x = f32({5, 7}), .sample = f32({35}), .mask = i64_of(1)}, {},
                            options);
  to.add<ops::SampleChange>(
      "sample_change_of_many",
      {.x = f32({3 * ops::kMostSampled + 5}), .sample = f32({ops::kMostSampled}), .mask = i64_of(2)},
      {.group = 1}, options);
  to.untimed<ops::SampleChange>(kFewNumbers);
}

template <>
void cases<ops::SquaresAndDigests>(Cases& to) {
  const CaseOptions<ops::SquaresAndDigests> options{.replicated_only = true};
  to.add<ops::SquaresAndDigests>("squares_and_digests", {.x = f32({12, 21})}, {}, options);
  to.add<ops::SquaresAndDigests>("squares_and_digests_blocks", {.x = f32({2 * ops::kDigestBlock + 3})}, {},
                                 options);
  to.time<ops::SquaresAndDigests>({.x = f32({kTimedTokens, kTimedWidth})});
}

template <>
void cases<ops::JoinDigests>(Cases& to) {
  to.add<ops::JoinDigests>("join_digests", {.digests = {i64_words(3), i64_words(1)}}, {},
                           {.replicated_only = true});
  to.untimed<ops::JoinDigests>(kFewNumbers);
}

}  // namespace strata::device
