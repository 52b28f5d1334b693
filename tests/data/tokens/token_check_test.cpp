#include "data/tokens/token_check.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/parallel.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

class TokenCheck : public ::testing::Test {
 protected:
  // The number of ids that were read.
  int64_t check(int64_t vocab_size) const {
    const auto corpus = open_token_corpus({(folder_ / "in").string()}, {.vocab_size = vocab_size});
    return check_token_ids(posix_file_system(), corpus, folder_ / "data/record.json", [] {});
  }
  template <typename T>
  void expect_found(const std::vector<T>& ids, int64_t vocab_size, const std::vector<std::string>& parts) {
    folder_.write_values<T>("in/b.bin", ids);
    for (int repeat = 0; repeat < 2; ++repeat)  // an invalid file is not noted as valid
      expect_error(ErrorKind::kData, parts, [&] { check(vocab_size); });
  }
  TemporaryFolder folder_;
};

TEST_F(TokenCheck, FindsTheFirstInvalidId) {
  folder_.write_values<uint16_t>("in/a.bin", {1, 2, 3});
  std::vector<uint16_t> ids(3'000'000, 299);
  ids[1'234'567] = 300;
  ids[1'234'568] = 301;
  ids[2'900'000] = 302;
  const int before = compute_threads();
  for (const int threads : {1, 3}) {
    set_compute_threads(threads);
    expect_found(ids, 300, {"b.bin", "token 1234567 is 300", "0 to 299"});
  }
  set_compute_threads(before);
  ids.assign(1, 400);
  expect_found(ids, 300, {"b.bin", "token 0 is 400"});
  folder_.write("in/b.json", R"({"dtype": "i32"})");
  expect_found(std::vector<int32_t>{1, -1, 2}, 300, {"b.bin", "token 1 is -1"});
}

TEST_F(TokenCheck, ReadsAnUnchangedFileOnce) {
  const Path a = folder_.write_values<uint16_t>("in/a.bin", {1, 2, 3});
  folder_.write_values<uint16_t>("in/b.bin", {4, 5});
  EXPECT_EQ(check(300), 5);
  EXPECT_EQ(check(300), 0);
  EXPECT_EQ(check(10), 5) << "another vocabulary";
  folder_.write_values<uint16_t>("in/b.bin", {4, 5, 6});
  EXPECT_EQ(check(10), 3);
  const timespec times[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, a.c_str(), times, 0), 0);
  EXPECT_EQ(check(10), 3);
  folder_.write("data/record.json", "{ nonsense");
  EXPECT_EQ(check(10), 6);
  EXPECT_EQ(check(65536), 0) << "two bytes hold no larger id";
}

TEST_F(TokenCheck, StopsWhenAsked) {
  std::filesystem::resize_file(folder_.write("in/a.bin", ""),
                               200 << 20);  // a hole: it takes no space on the disk
  folder_.write("in/a.json", R"({"dtype": "u8"})");
  const auto corpus = open_token_corpus({(folder_ / "in").string()}, {.vocab_size = 100});
  const auto stop = [] { throw std::runtime_error("stop"); };
  EXPECT_THROW(check_token_ids(posix_file_system(), corpus, folder_ / "record.json", stop),
               std::runtime_error);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "record.json"));
}

}  // namespace
}  // namespace strata::data
