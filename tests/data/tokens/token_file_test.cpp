#include "data/tokens/token_file.h"

#include <gtest/gtest.h>

#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

std::vector<int32_t> all_tokens(const TokenFile& file) {
  std::vector<int32_t> ids(static_cast<size_t>(file.tokens()));
  file.read(0, file.tokens(), ids.data());
  return ids;
}

std::vector<int64_t> all_ends(const TokenFile& file) {
  std::vector<int64_t> ends;
  for (int64_t d = 0; d < file.documents(); ++d) ends.push_back(file.document_end(d));
  return ends;
}

// lengths [3, 2, 4], u16, documents [0, 1, 3]: the 94 bytes of the format's description.
std::string example_index() {
  const unsigned char bytes[94] = {
      0x4d, 0x4d, 0x49, 0x44, 0x49, 0x44, 0x58, 0x00, 0x00, 0x01, 0, 0, 0, 0, 0, 0, 0, 0x08, 0x03,
      0,    0,    0,    0,    0,    0,    0,    0x03, 0,    0,    0, 0, 0, 0, 0, 3, 0, 0,    0,
      2,    0,    0,    0,    4,    0,    0,    0,    0,    0,    0, 0, 0, 0, 0, 0, 6, 0,    0,
      0,    0,    0,    0,    0,    0x0a, 0,    0,    0,    0,    0, 0, 0, 0, 0, 0, 0, 0,    0,
      0,    0,    1,    0,    0,    0,    0,    0,    0,    0,    3, 0, 0, 0, 0, 0, 0, 0};
  return {reinterpret_cast<const char*>(bytes), sizeof bytes};
}

TEST(TokenFile, WidthWithoutAHeaderFollowsTheVocabulary) {
  const TemporaryFolder folder;
  const Path narrow = folder.write_values<uint16_t>("a.bin", {1, 2, 65535});
  const Path wide = folder.write_values<uint32_t>("b.bin", {1, 2, 65536});
  EXPECT_EQ(all_tokens(TokenFile(narrow, {.vocab_size = 65536})), (std::vector<int32_t>{1, 2, 65535}));
  EXPECT_EQ(all_tokens(TokenFile(wide, {.vocab_size = 65537})), (std::vector<int32_t>{1, 2, 65536}));
  expect_error(ErrorKind::kConfig, {"a.bin", "dtype"}, [&] { TokenFile file(narrow); });
}

TEST(TokenFile, JsonNextToItTakesPrecedence) {
  const TemporaryFolder folder;
  const Path path = folder.write_values<uint32_t>("a.bin", {7, 0, 70000, 0});
  folder.write("a.json",
               R"({"dtype": "u32", "vocab_size": 80000, "tokenizer_hash": "abc", "end_of_text_id": 0,
                             "documents": 2, "tokens": 4, "note": "kept"})");
  const TokenFile file(path, {.end_of_text = 9});
  EXPECT_EQ(file.type(), TokenType::kU32);
  EXPECT_EQ(file.end_of_text(), 0);
  EXPECT_EQ(file.vocab_limit(), 80000);
  EXPECT_FALSE(file.has_documents());
  EXPECT_EQ(all_tokens(file), (std::vector<int32_t>{7, 0, 70000, 0}));
  expect_error(ErrorKind::kData, {"a.bin", "abc", "xyz"},
               [&] { TokenFile(path, {.tokenizer_hash = "xyz"}); });
  EXPECT_NO_THROW(TokenFile(path, {.tokenizer_hash = "another tool's"}));
  folder.write("a.json", R"({"dtype": "u32", "tokens": 5})");
  expect_error(ErrorKind::kData, {"a.bin", "4 tokens", "5"}, [&] { TokenFile file2(path); });
  folder.write("a.json", R"({"dtype": "float"})");
  expect_error(ErrorKind::kData, {"a.json", "dtype", "float"}, [&] { TokenFile file2(path); });
  folder.write("a.json", R"({"dtype": "u32", "vocab_size": -3})");
  expect_error(ErrorKind::kData, {"a.json", "vocab_size", "-3"}, [&] { TokenFile file2(path); });
  folder.write("a.json", "{");
  expect_error(ErrorKind::kData, {"a.json", "JSON"}, [&] { TokenFile file2(path); });
}

TEST(TokenFile, DocumentTableIsChecked) {
  const TemporaryFolder folder;
  const Path path = folder.write_values<uint16_t>("a.bin", {1, 2, 3, 4, 5});
  folder.write_values<uint64_t>("a.documents", {2, 2, 5});
  const TokenFile file(path, {.vocab_size = 100});
  EXPECT_EQ(all_ends(file), (std::vector<int64_t>{2, 2, 5}));
  EXPECT_EQ(file.first_document_ending_after(0), 0);
  EXPECT_EQ(file.first_document_ending_after(1), 0);
  EXPECT_EQ(file.first_document_ending_after(2), 2);
  EXPECT_EQ(file.first_document_ending_after(4), 2);
  EXPECT_EQ(file.first_document_ending_after(5), 3);
  auto open = [&] { TokenFile again(path, {.vocab_size = 100}); };
  folder.write_values<uint64_t>("a.documents", {3, 2, 5});
  expect_error(ErrorKind::kData, {"a.documents", "document 1"}, open);
  folder.write_values<uint64_t>("a.documents", {2, 6});
  expect_error(ErrorKind::kData, {"a.documents", "document 1", "6"}, open);
  folder.write_values<uint64_t>("a.documents", {2, 4});
  expect_error(ErrorKind::kData, {"a.documents", "4 of 5"}, open);
  folder.write("a.documents", "12345");
  expect_error(ErrorKind::kData, {"a.documents", "5 bytes"}, open);
}

TEST(TokenFile, IdsOutsideTheVocabularyAreNamed) {
  const TemporaryFolder folder;
  std::vector<uint16_t> ids(5000, 7);
  ids[4321] = 600;
  const Path path = folder.write_values("a.bin", ids);
  const TokenFile file(path, {.vocab_size = 512});
  std::vector<int32_t> out(5000);
  file.read(0, 4321, out.data());
  file.read(4322, 678, out.data());
  expect_error(ErrorKind::kData, {"a.bin", "token 4321", "600", "511"},
               [&] { file.read(4000, 1000, out.data()); });
}

TEST(TokenFile, RejectsTruncatedFiles) {
  const TemporaryFolder folder;
  const Path path = folder.write("a.bin", "12345");
  expect_error(ErrorKind::kData, {"a.bin", "5 bytes"}, [&] { TokenFile(path, {.vocab_size = 512}); });
  EXPECT_EQ(TokenFile(folder.write("empty.bin", ""), {.vocab_size = 512}).tokens(), 0);
}

TEST(TokenFile, MegatronPair) {
  const TemporaryFolder folder;
  const Path path = folder.write_values<uint16_t>("a.bin", {10, 11, 12, 20, 21, 30, 31, 32, 33});
  folder.write("a.idx", example_index());
  const TokenFile file(path);
  EXPECT_EQ(file.type(), TokenType::kU16);
  EXPECT_EQ(all_tokens(file), (std::vector<int32_t>{10, 11, 12, 20, 21, 30, 31, 32, 33}));
  EXPECT_EQ(all_ends(file), (std::vector<int64_t>{3, 9}));
  // Multimodal indexes end in one more byte a sequence.
  folder.write("a.idx", example_index() + std::string(3, '\0'));
  EXPECT_EQ(all_ends(TokenFile(path)), (std::vector<int64_t>{3, 9}));
}

// Files of tools/golden/make_megatron_pair.py.
TEST(TokenFile, MegatronGoldenFiles) {
  for (const auto& [name, scale] : std::vector<std::pair<std::string, int32_t>>{{"u16", 1}, {"i32", 300}}) {
    const TokenFile file(Path(STRATA_TEST_DATA) / "megatron" / (name + ".bin"));
    EXPECT_EQ(token_type_name(file.type()), name);
    std::vector<int32_t> expected;
    const int32_t lengths[] = {5, 3, 7, 1};
    for (int32_t s = 0; s < 4; ++s) {
      for (int32_t j = 0; j < lengths[s]; ++j) expected.push_back((s * 100 + j) * scale);
    }
    EXPECT_EQ(all_tokens(file), expected);
    EXPECT_EQ(all_ends(file), (std::vector<int64_t>{5, 15, 16}));
  }
}

TEST(TokenFile, MegatronSignedIds) {
  const TemporaryFolder folder;
  const Path path = folder.write_values<int32_t>("a.bin", {10, 11, 12, 20, -1, 30, 31, 32, 33});
  std::string index = example_index();
  index[17] = 4;
  for (int s = 0; s < 3; ++s)
    index[46 + 8 * static_cast<size_t>(s)] =
        static_cast<char>(std::vector{0, 12, 20}[static_cast<size_t>(s)]);
  folder.write("a.idx", index);
  const TokenFile file(path);
  std::vector<int32_t> out(9);
  file.read(0, 4, out.data());
  EXPECT_EQ(out[3], 20);
  expect_error(ErrorKind::kData, {"a.bin", "token 4", "-1"}, [&] { file.read(0, 9, out.data()); });
}

TEST(TokenFile, RejectsADamagedMegatronIndex) {
  const TemporaryFolder folder;
  const Path path = folder.write_values<uint16_t>("a.bin", {10, 11, 12, 20, 21, 30, 31, 32, 33});
  auto expect_refused = [&](const std::string& index, const std::vector<std::string>& parts) {
    folder.write("a.idx", index);
    expect_error(ErrorKind::kData, parts, [&] { TokenFile file(path); });
  };
  auto changed = [&](size_t at, char value) {
    std::string index = example_index();
    index[at] = value;
    return index;
  };
  for (size_t size = 0; size < 94; ++size) expect_refused(example_index().substr(0, size), {"a.idx"});
  expect_refused(changed(0, 'X'), {"a.idx", "MMIDIDX"});
  expect_refused(changed(9, 2), {"a.idx", "version 2"});
  expect_refused(changed(17, 6), {"a.idx", "type code 6"});
  expect_refused(changed(25, 0x7f), {"a.idx", "sequences"});
  expect_refused(changed(26, 0), {"a.idx"});
  expect_refused(changed(33, 0x7f), {"a.idx"});
  expect_refused(changed(37, char(0x80)), {"a.idx", "length"});
  expect_refused(changed(54, 7), {"a.idx", "sequence 1", "byte 7"});
  expect_refused(changed(70, 1), {"a.idx", "document mark 0"});
  expect_refused(changed(78, 4), {"a.idx", "document mark 1"});
  expect_refused(changed(86, 2), {"a.idx", "sequence 2 of 3"});
  folder.write("a.idx", example_index());
  folder.write_values<uint16_t>("a.bin", {10, 11, 12, 20, 21, 30, 31, 32});
  expect_error(ErrorKind::kData, {"a.bin", "8 tokens", "9"}, [&] { TokenFile file(path); });
}

TEST(TokenFile, Datatrove) {
  const TemporaryFolder folder;
  const Path path = folder.write_values<uint16_t>("00000_unshuffled.ds", {5, 6, 7, 0, 8, 0});
  folder.write_values<uint64_t>("00000_unshuffled.ds.index", {4, 6});
  folder.write("00000_unshuffled.ds.metadata", "gpt2|2\n6\n6 tokens");
  const TokenFile file(path);
  EXPECT_EQ(all_tokens(file), (std::vector<int32_t>{5, 6, 7, 0, 8, 0}));
  EXPECT_EQ(all_ends(file), (std::vector<int64_t>{4, 6}));
  folder.write("00000_unshuffled.ds.metadata", "gpt2|2\n7\n7 tokens");
  expect_error(ErrorKind::kData, {".ds", "6 tokens", "7"}, [&] { TokenFile again(path); });
  folder.write("00000_unshuffled.ds.metadata", "gpt2|3\n6\n6 tokens");
  expect_error(ErrorKind::kData, {".ds.metadata", "3"}, [&] { TokenFile again(path); });
}

TEST(TokenFile, IdsInMemoryReadLikeAFile) {
  const TokenFile file("these ids", {5, 6, 7, 9}, {.vocab_size = 9, .end_of_text = 6});
  EXPECT_EQ(file.tokens(), 4);
  EXPECT_EQ(file.end_of_text(), 6);
  EXPECT_FALSE(file.has_documents());
  std::vector<int32_t> ids(3);
  file.read(0, 3, ids.data());
  EXPECT_EQ(ids, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_THROW(file.read(1, 3, ids.data()), DataError);
}

TEST(TokenFile, MissingFileNamesTheUsersPath) {
  expect_error(ErrorKind::kConfig, {"/nowhere/a.bin"},
               [] { TokenFile("/nowhere/a.bin", {.vocab_size = 9}); });
}

}  // namespace
}  // namespace strata::data
