#include "observe/tensorboard.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "fixtures/scratch_folder.h"
#include "observe/metrics.h"

namespace strata::observe {
namespace {

std::string bytes_of(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes += static_cast<char>(value);
  return bytes;
}

TEST(TensorBoard, Crc32cOfTheCheckString) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

// Records written by two independent encoders of the format.
TEST(TensorBoard, GoldenRecords) {
  EXPECT_EQ(tensorboard_version_record(1.0),
            bytes_of({0x18, 0,    0,    0,    0,    0,    0,    0,    0xa3, 0x7f, 0x4b, 0x22, 0x09, 0,
                      0,    0,    0,    0,    0,    0xf0, 0x3f, 0x1a, 0x0d, 0x62, 0x72, 0x61, 0x69, 0x6e,
                      0x2e, 0x45, 0x76, 0x65, 0x6e, 0x74, 0x3a, 0x32, 0x86, 0xbf, 0x57, 0x7a}));
  EXPECT_EQ(tensorboard_scalar_record(2.0, 7, "loss", 2.5f),
            bytes_of({0x1a, 0,    0,    0,    0,    0,    0,    0,    0x12, 0x9b, 0xd8, 0x2d, 0x09, 0,
                      0,    0,    0,    0,    0,    0,    0x40, 0x10, 0x07, 0x2a, 0x0d, 0x0a, 0x0b, 0x0a,
                      0x04, 0x6c, 0x6f, 0x73, 0x73, 0x15, 0,    0,    0x20, 0x40, 0xc2, 0xdf, 0xec, 0x60}));
}

// metrics.jsonl and TensorBoard have the same numbers, except the time.
TEST(TensorBoard, HasTheNumbersOfMetrics) {
  const MetricFields fields{{"tokens", int64_t{512}},
                            {"time", 1.7e9},
                            {"loss", 2.5},
                            {"skipped", true},
                            {"expert_max_vio", 0.25},
                            {"dead_experts", int64_t{3}},
                            {"slowest_rank", int64_t{1}},
                            {"step_ms_max", 12.5},
                            {"note", std::string("no number")},
                            {"eval/valid/loss", 2.75}};
  const std::vector<std::pair<std::string, double>> wanted{
      {"tokens", 512},     {"loss", 2.5},       {"skipped", 1},        {"expert_max_vio", 0.25},
      {"dead_experts", 3}, {"slowest_rank", 1}, {"step_ms_max", 12.5}, {"eval/valid/loss", 2.75}};
  EXPECT_EQ(scalars_of(fields), wanted);
}

TEST(TensorBoard, LargeStepsTakeSeveralVarintBytes) {
  const std::string record = tensorboard_scalar_record(0, 300, "x", 0);
  EXPECT_NE(record.find(bytes_of({0x10, 0xac, 0x02})), std::string::npos);
}

TEST(TensorBoard, EachWriterOpensItsOwnFile) {
  const ScratchFolder folder;
  TensorBoardWriter first(posix_file_system(), folder / "logs", 1700000000);
  TensorBoardWriter second(posix_file_system(), folder / "logs", 1700000000);
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(first.path().filename().string().find("events.out.tfevents.1700000000."), 0u);
  const std::vector<std::pair<std::string, double>> values = {{"loss", 2.5}, {"lr", 0.5}};
  first.scalars(2.0, 7, values);
  EXPECT_EQ(read_file(first.path()), tensorboard_version_record(1700000000) +
                                         tensorboard_scalar_record(2.0, 7, "loss", 2.5f) +
                                         tensorboard_scalar_record(2.0, 7, "lr", 0.5f));
}

}  // namespace
}  // namespace strata::observe
