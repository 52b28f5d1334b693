#include "data/tokens/token_writer.h"

#include <gtest/gtest.h>

#include "data/tokens/token_file.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

TEST(TokenWriter, BytesOnDisk) {
  const TemporaryFolder folder;
  TokenWriter writer(posix_file_system(), folder / "a.bin", TokenType::kU16);
  writer.append(std::vector<int32_t>{1, 258});
  writer.end_document();
  writer.append(std::vector<int32_t>{65535});
  writer.end_document();
  EXPECT_FALSE(std::filesystem::exists(folder / "a.bin"));
  writer.finish({.vocab_size = 65536, .tokenizer_hash = "h", .end_of_text = 3}, R"({"more": true})");
  EXPECT_EQ(read_file(folder / "a.bin"), std::string("\x01\x00\x02\x01\xff\xff", 6));
  EXPECT_EQ(read_file(folder / "a.documents"), std::string("\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 16));
  const std::string json = read_file(folder / "a.json");
  for (const char* part : {"\"dtype\": \"u16\"", "\"vocab_size\": 65536", "\"tokenizer_hash\": \"h\"",
                           "\"end_of_text_id\": 3", "\"documents\": 2", "\"tokens\": 3", "\"more\": true"}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << " in " << json;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "a.bin.part"));
}

TEST(TokenWriter, ManyTokensRoundTrip) {
  const TemporaryFolder folder;
  std::vector<int32_t> ids(700001);  // more than two buffers
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 3);
  TokenWriter writer(posix_file_system(), folder / "a.bin", TokenType::kU32);
  const std::span<const int32_t> all(ids);
  writer.append(all.first(5));
  writer.append(all.subspan(5, 500000));
  writer.append(all.subspan(500005));
  writer.append({});
  writer.end_document();
  writer.finish({}, "");
  const TokenFile file(folder / "a.bin");
  std::vector<int32_t> read(ids.size());
  ASSERT_EQ(file.tokens(), 700001);
  file.read(0, file.tokens(), read.data());
  EXPECT_EQ(read, ids);
}

TEST(TokenWriter, IdsThatDoNotFitAreInternalErrors) {
  const TemporaryFolder folder;
  {
    TokenWriter narrow(posix_file_system(), folder / "a.bin", TokenType::kU16);
    EXPECT_THROW(narrow.append(std::vector<int32_t>{65536}), InternalError);
    EXPECT_THROW(narrow.append(std::vector<int32_t>{-1}), InternalError);
    TokenWriter wide(posix_file_system(), folder / "b.bin", TokenType::kU32);
    EXPECT_THROW(wide.append(std::vector<int32_t>{-1}), InternalError);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));  // unfinished files are gone
}

}  // namespace
}  // namespace strata::data
