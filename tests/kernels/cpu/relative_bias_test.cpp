#include "kernels/cpu/relative_bias.h"

#include <gtest/gtest.h>

#include <vector>

namespace strata::cpu {
namespace {

struct Start {
  int64_t distance, bucket;
};

// The first distance of each bucket, from -300 to 300, as in T5Attention._relative_position_bucket of
// transformers 5.23.
TEST(RelativeBias, BucketsMatchTransformers) {
  struct Case {
    RelativeBiasShape shape;
    std::vector<Start> starts;
  };
  const Case cases[] = {
      {{.buckets = 32, .max_distance = 128, .bidirectional = true},
       {{-300, 15}, {-90, 14}, {-63, 13}, {-45, 12}, {-31, 11}, {-22, 10}, {-15, 9}, {-11, 8},
        {-7, 7},    {-6, 6},   {-5, 5},   {-4, 4},   {-3, 3},   {-2, 2},   {-1, 1},  {0, 0},
        {1, 17},    {2, 18},   {3, 19},   {4, 20},   {5, 21},   {6, 22},   {7, 23},  {8, 24},
        {12, 25},   {16, 26},  {23, 27},  {32, 28},  {46, 29},  {64, 30},  {91, 31}}},
      {{.buckets = 32, .max_distance = 128},
       {{-300, 31}, {-112, 30}, {-98, 29}, {-86, 28}, {-76, 27}, {-66, 26}, {-58, 25}, {-51, 24},
        {-45, 23},  {-39, 22},  {-34, 21}, {-30, 20}, {-26, 19}, {-23, 18}, {-20, 17}, {-18, 16},
        {-15, 15},  {-14, 14},  {-13, 13}, {-12, 12}, {-11, 11}, {-10, 10}, {-9, 9},   {-8, 8},
        {-7, 7},    {-6, 6},    {-5, 5},   {-4, 4},   {-3, 3},   {-2, 2},   {-1, 1},   {0, 0}}},
      {{.buckets = 8, .max_distance = 20, .bidirectional = true},
       {{-300, 3}, {-6, 2}, {-1, 1}, {0, 0}, {1, 5}, {2, 6}, {7, 7}}},
      {{.buckets = 10, .max_distance = 6}, {{-300, 9}, {-5, 5}, {-4, 4}, {-3, 3}, {-2, 2}, {-1, 1}, {0, 0}}},
      {{.buckets = 32, .max_distance = 129},
       {{-300, 31}, {-113, 30}, {-99, 29}, {-87, 28}, {-76, 27}, {-67, 26}, {-58, 25}, {-51, 24},
        {-45, 23},  {-39, 22},  {-34, 21}, {-30, 20}, {-26, 19}, {-23, 18}, {-20, 17}, {-18, 16},
        {-15, 15},  {-14, 14},  {-13, 13}, {-12, 12}, {-11, 11}, {-10, 10}, {-9, 9},   {-8, 8},
        {-7, 7},    {-6, 6},    {-5, 5},   {-4, 4},   {-3, 3},   {-2, 2},   {-1, 1},   {0, 0}}},
  };
  for (const Case& one : cases) {
    size_t next = 0;
    int64_t bucket = -1;
    for (int64_t distance = -300; distance <= 300; ++distance) {
      if (next < one.starts.size() && one.starts[next].distance == distance)
        bucket = one.starts[next++].bucket;
      ASSERT_EQ(relative_bucket(one.shape, distance), bucket) << one.shape.buckets << " " << distance;
    }
    ASSERT_EQ(next, one.starts.size());
  }
}

TEST(RelativeBias, LooksUpEveryDistance) {
  const RelativeBiasShape shape{
      .buckets = 8, .heads = 2, .max_distance = 20, .bidirectional = true, .first = -7, .last = 2};
  std::vector<float> table;
  for (int i = 0; i < 16; ++i) table.push_back(static_cast<float>(i));
  std::vector<float> bias(20, -1.0f);
  relative_bias(shape, bias.data(), table.data());
  // Distances -7, -6 … -2, -1, 0, 1, 2 have buckets 3, 2, 1, 0, 5, 6; an entry is twice the bucket, plus one
  // for the second head.
  const std::vector<float> expected{6, 4, 4, 4, 4, 4, 2, 0, 10, 12, 7, 5, 5, 5, 5, 5, 3, 1, 11, 13};
  EXPECT_EQ(bias, expected);
}

TEST(RelativeBias, GradientAccumulates) {
  const RelativeBiasShape shape{
      .buckets = 8, .heads = 2, .max_distance = 20, .bidirectional = true, .first = -2, .last = 1};
  const std::vector<float> dbias{1, 2, 3, 4, 10, 20, 30, 40};
  std::vector<float> table(16, 100.0f);
  relative_bias_backward(shape, table.data(), dbias.data(), false);
  // Distances -2, -1, 0, 1 have buckets 2, 1, 0, 5.
  const std::vector<float> once{3, 30, 2, 20, 1, 10, 0, 0, 0, 0, 4, 40, 0, 0, 0, 0};
  EXPECT_EQ(table, once);
  relative_bias_backward(shape, table.data(), dbias.data(), true);
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(table[i], 2 * once[i]) << i;
}

TEST(DocumentEnds, FindTheEndOfEachRowsDocument) {
  // Two sequences; the keys belong to documents 0 to 3 and 3 to 7 and to padding, which forms its own
  // document.
  const std::vector<int32_t> k_begin{0, 0, 0, 3, 3, 3, 3, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  const std::vector<int32_t> q_begin{0, 0, 3, 8, -1, 5, 0, 0, 0, -1, 7, 0};
  std::vector<int32_t> ends(12, 99);
  document_ends(2, 6, 9, ends.data(), q_begin.data(), k_begin.data());
  EXPECT_EQ(ends, (std::vector<int32_t>{3, 3, 7, 9, 0, 0, 9, 9, 9, 0, 0, 9}));
}

}  // namespace
}  // namespace strata::cpu
