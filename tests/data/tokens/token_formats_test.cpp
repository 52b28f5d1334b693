// Megatron pairs and datatrove's .ds files: written like their tools write them, and read with any damaged
// bits.
#include <gtest/gtest.h>

#include <span>
#include <sstream>

#include "data/tokens/megatron_index.h"
#include "data/tokens/token_file.h"
#include "data/tokens/token_writer.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

// The documents of tools/golden/make_token_files.py.
std::vector<std::vector<int32_t>> golden_documents(bool wide) {
  std::vector<std::vector<int32_t>> documents;
  int64_t count = 0;
  for (int64_t d = 0; d < 12; ++d) {
    std::vector<int32_t> ids;
    for (int64_t j = 0; j < d * 5 % 13; ++j, ++count)
      ids.push_back(static_cast<int32_t>(wide ? count * 7001 % 100000 : count * 7 % 60000));
    documents.push_back(ids);
  }
  return documents;
}

void write(const Path& path, TokenFormat format, int64_t vocab_size,
           const std::vector<std::vector<int32_t>>& documents) {
  TokenWriter writer(posix_file_system(), path, token_type_for(vocab_size, format), format);
  for (const auto& ids : documents) {
    writer.append(ids);
    writer.end_document();
  }
  writer.finish({.tokenizer_name = "tokenizer.json"}, "");
}

const Path& golden() {
  static const Path folder = Path(STRATA_TEST_DATA) / "token_files";
  return folder;
}

TEST(TokenFormats, DatatrovesBytes) {
  const TemporaryFolder folder;
  for (const bool wide : {false, true}) {
    const std::string name = wide ? "wide.ds" : "narrow.ds";
    write(folder / name, TokenFormat::kDatatrove, wide ? 100000 : 65536, golden_documents(wide));
    for (const char* suffix : {"", ".index", ".metadata"})
      EXPECT_EQ(read_file(folder / (name + suffix)), read_file(golden() / (name + suffix))) << name << suffix;
  }
  for (const Path& path : expand_glob(folder.path().string())) EXPECT_NE(path.extension(), ".part") << path;
}

TEST(TokenFormats, MegatronsBytes) {
  const TemporaryFolder folder;
  for (const bool wide : {false, true}) {
    const std::string name = wide ? "wide_pair" : "narrow_pair";
    auto documents = golden_documents(wide);
    std::erase_if(documents, [](const auto& ids) { return ids.empty(); });
    write(folder / (name + ".bin"), TokenFormat::kMegatron, wide ? 100000 : 65499, documents);
    for (const char* suffix : {".bin", ".idx"})
      EXPECT_EQ(read_file(folder / (name + suffix)), read_file(golden() / (name + suffix))) << name << suffix;
    EXPECT_FALSE(std::filesystem::exists(folder / (name + ".documents")));
    EXPECT_FALSE(std::filesystem::exists(folder / (name + ".json")));
  }
  EXPECT_EQ(expand_glob(folder.path().string()).size(), 4u);
}

TEST(TokenFormats, WidthsAgreeWithTheTools) {
  EXPECT_EQ(token_type_for(65499, TokenFormat::kMegatron), TokenType::kU16);
  EXPECT_EQ(token_type_for(65500, TokenFormat::kMegatron), TokenType::kI32);
  EXPECT_EQ(token_type_for(65536, TokenFormat::kDatatrove), TokenType::kU16);
  EXPECT_EQ(token_type_for(65537, TokenFormat::kDatatrove), TokenType::kU32);
}

TEST(TokenFormats, CountsAgreeWithHumanize) {
  std::istringstream lines(read_file(golden() / "metric.txt"));
  int seen = 0;
  for (std::string line; std::getline(lines, line); ++seen) {
    const size_t space = line.find(' ');
    EXPECT_EQ(datatrove_count(std::stoll(line.substr(0, space))), line.substr(space + 1)) << line;
  }
  EXPECT_EQ(seen, 25);
}

TEST(TokenFormats, EveryFormatRoundTrips) {
  const TemporaryFolder folder;
  std::vector<std::vector<int32_t>> documents = golden_documents(true);  // some are empty
  documents.emplace_back(700000, 5);                                     // more than a buffer
  documents.push_back({});
  for (const TokenFormat format : {TokenFormat::kStrata, TokenFormat::kMegatron, TokenFormat::kDatatrove}) {
    const Path path = folder / ("a" + std::string(token_format_extension(format)));
    write(path, format, 100000, documents);
    const TokenFile file(path, {.vocab_size = 100000});
    ASSERT_EQ(file.documents(), static_cast<int64_t>(documents.size())) << token_format_name(format);
    int64_t begin = 0;
    for (int64_t d = 0; d < file.documents(); ++d) {
      std::vector<int32_t> ids(static_cast<size_t>(file.document_end(d) - begin));
      file.read(begin, static_cast<int64_t>(ids.size()), ids.data());
      EXPECT_TRUE(ids == documents[static_cast<size_t>(d)]) << token_format_name(format) << " " << d;
      begin = file.document_end(d);
    }
    for (const Path& written : expand_glob(folder.path().string())) std::filesystem::remove(written);
  }
}

// A reader of damaged files must report the damage or return something consistent.
void expect_refused_or_consistent(const Path& path, const std::string& what) {
  try {
    const TokenFile file(path, {.vocab_size = 100000});
    int64_t end = 0;
    for (int64_t d = 0; d < file.documents(); ++d) {
      ASSERT_GE(file.document_end(d), end) << what;
      end = file.document_end(d);
    }
    ASSERT_TRUE(!file.has_documents() || end == file.tokens()) << what;
    std::vector<int32_t> ids(static_cast<size_t>(file.tokens()));
    file.read(0, file.tokens(), ids.data());
    for (int64_t position = 0; position <= file.tokens(); position += 7) {
      const int64_t d = file.first_document_ending_after(position);
      ASSERT_TRUE(d == file.documents() || file.document_end(d) > position) << what;
    }
  } catch (const DataError&) {
    // damaged
  }
}

// The files of a golden set, to be damaged: STEM.bin and .idx, or STEM.ds and the files next to it.
void copy_golden(const TemporaryFolder& folder, const std::string& stem) {
  for (const char* suffix : {".bin", ".idx", ".ds", ".ds.index", ".ds.metadata"}) {
    const Path from = golden() / (stem + suffix);
    if (std::filesystem::exists(from)) folder.write(stem + suffix, read_file(from));
  }
}

std::string with_flipped(std::string bytes, size_t bit) {
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  return bytes;
}

TEST(TokenFormats, DetectsFlippedBitsInAnIndex) {
  const std::string whole = read_file(golden() / "narrow_pair.idx");
  int64_t refused = 0;
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    const std::string changed = with_flipped(whole, bit);
    try {
      const MegatronIndex index =
          parse_megatron_index(std::as_bytes(std::span(changed.data(), changed.size())), "index");
      int64_t end = 0;
      for (int64_t d = 0; d < index.documents; ++d) {
        ASSERT_GE(index.document_end(d), end) << bit;
        end = index.document_end(d);
      }
      ASSERT_EQ(end, index.tokens) << bit;
    } catch (const DataError&) {
      ++refused;
    }
  }
  // The remaining bits, of the type, of the last length and of the document marks, yield another valid index.
  EXPECT_GT(refused, static_cast<int64_t>(whole.size() * 8 * 9 / 10));
}

TEST(TokenFormats, DetectsFlippedBitsNextToDatatrovesIds) {
  const TemporaryFolder folder;
  copy_golden(folder, "wide");
  for (const char* name : {"wide.ds.index", "wide.ds.metadata"}) {
    const std::string whole = read_file(golden() / name);
    for (size_t bit = 0; bit < whole.size() * 8; bit += 3) {  // every place within a byte
      folder.write(name, with_flipped(whole, bit));
      expect_refused_or_consistent(folder / "wide.ds", name + std::string(" bit ") + std::to_string(bit));
    }
    folder.write(name, whole);
  }
}

TEST(TokenFormats, RejectsTruncatedFiles) {
  for (const char* golden_name : {"narrow_pair.bin", "wide.ds", "wide.ds.index"}) {
    const TemporaryFolder folder;
    const std::string name = golden_name;
    const std::string stem = name.substr(0, name.find('.'));
    const std::string ids = stem + (stem.ends_with("pair") ? ".bin" : ".ds");
    copy_golden(folder, stem);
    const std::string whole = read_file(golden() / name);
    for (size_t size = 0; size < whole.size(); size += 3) {
      folder.write(name, whole.substr(0, size));
      EXPECT_THROW(TokenFile(folder / ids, {.vocab_size = 100000}), DataError) << name << " " << size;
    }
  }
}

}  // namespace
}  // namespace strata::data
