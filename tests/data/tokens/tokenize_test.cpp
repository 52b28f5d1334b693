#include "data/tokens/tokenize.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>

#include "base/json.h"
#include "base/parallel.h"
#include "data/tokens/text_encoder.h"
#include "data/tokens/token_corpus.h"
#include "fixtures/byte_tokenizer.h"
#include "fixtures/child_process.h"
#include "fixtures/compressed.h"
#include "fixtures/faulty_file_system.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

// A simple tokenizer: each byte is an id, 256 ends a text, 257 begins one.
TextEncoder byte_encoder(std::atomic<int>* calls_ = nullptr) {
  TextEncoder encoder;
  encoder.encode = [calls_](std::string_view text, std::vector<int32_t>& ids, SpecialCounts&) {
    if (calls_ != nullptr) ++*calls_;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  };
  encoder.vocab_size = 258;
  encoder.begin_of_text = {257};
  encoder.end_of_text = 256;
  encoder.hash = "bytes";
  return encoder;
}

std::vector<int32_t> ids_of(const std::vector<std::string>& documents, bool bos, bool eos) {
  std::vector<int32_t> ids;
  for (const std::string& document : documents) {
    if (bos) ids.push_back(257);
    for (const char c : document) ids.push_back(static_cast<unsigned char>(c));
    if (eos) ids.push_back(256);
  }
  return ids;
}

std::vector<int32_t> ids_in(const Path& path) {
  const TokenFile file(path);
  std::vector<int32_t> ids(static_cast<size_t>(file.tokens()));
  file.read(0, file.tokens(), ids.data());
  return ids;
}

void set_mtime(const Path& path, int64_t seconds) {
  const timespec times[2] = {{seconds, 0}, {seconds, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

class Tokenize : public ::testing::Test {
 protected:
  TokenizeResult run(const TokenizeOptions& options = {}) {
    return tokenize_corpus(posix_file_system(), {(folder_ / "in").string()}, byte_encoder(&calls_), options,
                           folder_ / "cache");
  }
  TemporaryFolder folder_;
  std::atomic<int> calls_{0};
};

TEST_F(Tokenize, DocumentsInOrderWithTheirMarks) {
  folder_.write("in/1.txt", "one\n");
  folder_.write("in/2.jsonl", "{\"text\": \"two\"}\n{\"text\": \"\"}\n{\"text\": \"three\"}\n");
  folder_.write("in/3.txt.gz", gzip("four"));
  const std::vector<std::string> documents{"one\n", "two", "three", "four"};
  for (const bool bos : {false, true}) {
    for (const bool eos : {false, true}) {
      const auto result = run({.add_bos = bos, .add_eos = eos});
      EXPECT_FALSE(result.reused);
      EXPECT_EQ(result.documents, 4);
      EXPECT_EQ(ids_in(result.path), ids_of(documents, bos, eos));
      const auto corpus = open_token_corpus({result.path.string()});
      EXPECT_EQ(corpus.document_ends().size(), 4u);
      const TokenFile file(result.path);
      EXPECT_EQ(file.type(), TokenType::kU16);
      EXPECT_EQ(file.end_of_text(), 256);
      EXPECT_EQ(file.vocab_limit(), 258);
    }
  }
  const TokenFile file(run().path);
  expect_error(ErrorKind::kData, {"bytes", "bites"},
               [&] { TokenFile(file.name(), {.tokenizer_hash = "bites"}); });
}

TEST_F(Tokenize, BytesDoNotDependOnThreads) {
  std::string lines;
  for (int i = 0; i < 60000; ++i)
    lines += "{\"text\": \"" + std::string(static_cast<size_t>(i % 300 + 1), 'a') + "\"}\n";
  folder_.write("in/a.jsonl", lines);
  for (int i = 0; i < 30; ++i)
    folder_.write("in/b" + std::to_string(i) + ".txt", std::string(static_cast<size_t>(i * 1000 + 1), 'b'));
  const int before = compute_threads();
  std::string reference;
  for (const int threads : {1, 3}) {
    set_compute_threads(threads);
    std::filesystem::remove_all(folder_ / "cache");
    const auto result = run();
    const std::string bytes =
        read_file(result.path) + read_file(Path(result.path).replace_extension(".documents"));
    if (reference.empty()) reference = bytes;
    EXPECT_EQ(bytes, reference);
  }
  set_compute_threads(before);
}

// A long text is encoded in parts, cut only at places that its encoder knows.
TEST_F(Tokenize, LongTextIsSplitAtValidPlaces) {
  std::string text;
  for (int64_t i = 0; text.size() < 3'000'000; ++i)
    text += std::to_string(i * 7919) + (i % 9 == 0 ? "\n" : " ");
  folder_.write("in/1.txt", "short");
  folder_.write("in/2.txt", text);
  folder_.write("in/3.txt", text + "end");
  folder_.write("in/4.jsonl", "{\"text\": \"" + std::string(700'000, 'x') + "\"}\n");
  TextEncoder encoder = byte_encoder(&calls_);
  const auto bytes_of = [&](const TokenizeOptions& options) {
    std::filesystem::remove_all(folder_ / "cache");
    const auto result = tokenize_corpus(posix_file_system(), {(folder_ / "in").string()}, encoder, options,
                                        folder_ / "cache");
    EXPECT_EQ(result.documents, 4);
    return read_file(result.path) + read_file(Path(result.path).replace_extension(".documents"));
  };
  for (const TokenizeOptions& options : {TokenizeOptions{}, {.add_bos = true, .add_eos = false}}) {
    calls_ = 0;
    encoder.next_cut = nullptr;
    const std::string whole = bytes_of(options);
    EXPECT_EQ(calls_, 4);
    encoder.next_cut = [](std::string_view all, size_t from) {
      const size_t at = all.find('\n', from);
      return at == all.npos ? all.size() : at + 1;
    };
    EXPECT_TRUE(bytes_of(options) == whole);
    EXPECT_GT(calls_, 4 + 2 + 2 * 10);
    calls_ = 0;
    encoder.next_cut = [](std::string_view all, size_t) { return all.size(); };
    EXPECT_TRUE(bytes_of(options) == whole);
    EXPECT_EQ(calls_, 4);
  }
}

TEST_F(Tokenize, ExceptionFromProgressLeavesNoFiles) {
  std::string text;
  text.resize(20'000'000, 'x');
  folder_.write("in/1.txt", text);
  TextEncoder encoder = byte_encoder();
  encoder.next_cut = [](std::string_view, size_t from) { return from; };
  int heard = 0;
  const auto stop = [&](const TokenizeProgress& progress) {
    EXPECT_LT(progress.bytes_done, progress.bytes_total) << "it is reported before the end";
    ++heard;
    throw std::runtime_error("stop");
  };
  EXPECT_THROW(
      tokenize_corpus(posix_file_system(), {(folder_ / "in").string()}, encoder, {}, folder_ / "cache", stop),
      std::runtime_error);
  EXPECT_EQ(heard, 1);
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "cache")) {
    EXPECT_EQ(entry.path().extension(), ".lock") << "left over: " << entry.path();
  }
}

TEST_F(Tokenize, CacheIsReusedWhileNothingChanges) {
  const Path one = folder_.write("in/1.txt", "one");
  folder_.write("in/2.txt", "two");
  set_mtime(one, 1000);
  const auto first = run();
  EXPECT_FALSE(first.reused);
  calls_ = 0;
  const auto second = run();
  EXPECT_TRUE(second.reused);
  EXPECT_EQ(second.path, first.path);
  EXPECT_EQ(second.tokens, 8);
  EXPECT_EQ(second.documents, 2);
  set_mtime(one, 2000);  // touched, not changed: the content decides, and the new time is kept
  EXPECT_TRUE(run().reused);
  EXPECT_TRUE(run().reused);
  EXPECT_EQ(calls_, 0);

  folder_.write("in/1.txt", "ONE");
  set_mtime(one, 3000);
  const auto changed = run();
  EXPECT_FALSE(changed.reused);
  EXPECT_EQ(ids_in(changed.path), ids_of({"ONE", "two"}, false, true));
  folder_.write("in/1.txt", "longer");
  set_mtime(one, 3000);
  EXPECT_FALSE(run().reused);
  folder_.write("in/3.txt", "three");
  EXPECT_EQ(ids_in(run().path), ids_of({"longer", "two", "three"}, false, true));
  EXPECT_FALSE(run({.add_eos = false}).reused);
  EXPECT_TRUE(run().reused);  // each set of options has separate files
  TextEncoder other = byte_encoder();
  other.hash = "other";
  EXPECT_FALSE(
      tokenize_corpus(posix_file_system(), {(folder_ / "in").string()}, other, {}, folder_ / "cache").reused);
}

TEST_F(Tokenize, DamagedCacheIsRewritten) {
  folder_.write("in/1.txt", "one");
  const Path path = run().path;
  const Path meta = Path(path).replace_extension(".json");
  const auto facts = [&] {
    auto json = parse_json<nlohmann::json>(read_file(meta));
    json.erase("tokens_stat");  // when the file was made
    return json;
  };
  const auto good = facts();
  for (const std::string& damage :
       {std::string("{"), std::string("[]"), std::string("{\"dtype\": 7}"), std::string()}) {
    folder_.write("cache/" + meta.filename().string(), damage);
    EXPECT_FALSE(run().reused);
    EXPECT_EQ(facts(), good);
  }
  std::filesystem::resize_file(path, 4);
  EXPECT_FALSE(run().reused);
  std::filesystem::remove(Path(path).replace_extension(".documents"));
  EXPECT_FALSE(run().reused);
  EXPECT_TRUE(run().reused);
  // Bytes that are still ids, and ends that still fit.
  const auto whole = ids_in(path);
  for (const char* part : {".bin", ".documents"}) {
    const Path changed = Path(path).replace_extension(part);
    std::string bytes = read_file(changed);
    bytes[0] = static_cast<char>(bytes[0] ^ 1);
    folder_.write("cache/" + changed.filename().string(), bytes);
    set_mtime(changed, 4000);
    EXPECT_FALSE(run().reused) << part;
    EXPECT_EQ(ids_in(path), whole);
    // Touched, not changed; and a file made by an older program has no such record.
    set_mtime(changed, 5000);
    EXPECT_TRUE(run().reused) << part;
  }
  auto older = facts();
  older.erase("tokens_content");
  folder_.write("cache/" + meta.filename().string(), dump_json(older));
  EXPECT_TRUE(run().reused);
}

TEST_F(Tokenize, ProgressReachesTheEnd) {
  for (int i = 0; i < 5; ++i) folder_.write("in/" + std::to_string(i) + ".txt", std::string(3000000, 'x'));
  std::vector<TokenizeProgress> seen;
  tokenize_corpus(posix_file_system(), {(folder_ / "in").string()}, byte_encoder(), {}, folder_ / "cache",
                  [&](const TokenizeProgress& progress) { seen.push_back(progress); });
  ASSERT_GE(seen.size(), 2u);
  EXPECT_LT(seen[0].bytes_done, seen[0].bytes_total);
  EXPECT_EQ(seen.back().bytes_done, 15000000);
  EXPECT_EQ(seen.back().bytes_total, 15000000);
  EXPECT_EQ(seen.back().documents, 5);
  EXPECT_EQ(seen.back().tokens, 15000005);
}

TEST_F(Tokenize, ErrorsOfTheUser) {
  folder_.write("in/1.txt", "");
  expect_error(ErrorKind::kData, {"/in", "no text"}, [&] { run(); });
  folder_.write("in/2.jsonl", "{\"text\": \"a\"}\n{\"body\": \"a\"}\n");
  expect_error(ErrorKind::kData, {"2.jsonl:2", "body"}, [&] { run(); });
  expect_error(ErrorKind::kData, {"2.jsonl:1", "\"body\""}, [&] { run({.text_field = "body"}); });
  folder_.write("in/2.jsonl", "");
  folder_.write("in/3.bin", "");
  expect_error(ErrorKind::kConfig, {"3.bin", "token file"}, [&] { run(); });
  TextEncoder bare = byte_encoder();
  bare.end_of_text.reset();
  bare.begin_of_text.clear();
  auto with = [&](const TokenizeOptions& options) {
    tokenize_corpus(posix_file_system(), {(folder_ / "in").string()}, bare, options, folder_ / "cache");
  };
  expect_error(ErrorKind::kConfig, {"add_eos"}, [&] { with({}); });
  expect_error(ErrorKind::kConfig, {"add_bos"}, [&] { with({.add_bos = true, .add_eos = false}); });
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "cache")) {
    EXPECT_EQ(entry.path().extension(), ".lock") << "left over: " << entry.path();
  }
}

TEST_F(Tokenize, WideVocabulary) {
  folder_.write("in/1.txt", "abc");
  TextEncoder wide = byte_encoder();
  wide.encode = [](std::string_view, std::vector<int32_t>& ids, SpecialCounts&) { ids.push_back(70000); };
  wide.vocab_size = 80000;
  const auto result =
      tokenize_corpus(posix_file_system(), {(folder_ / "in").string()}, wide, {}, folder_ / "cache");
  EXPECT_EQ(TokenFile(result.path).type(), TokenType::kU32);
  EXPECT_EQ(ids_in(result.path), (std::vector<int32_t>{70000, 256}));
}

// The n-th call that changes the disk ends the process, or fails: for any n, the next call finds all or
// nothing.
TEST_F(Tokenize, ErrorsLeaveNoPartialCache) {
  folder_.write("in/1.txt", "the new text");
  const auto expected = ids_of({"the new text"}, false, true);
  auto attempt = [&](FileSystem& files) {
    return tokenize_corpus(files, {(folder_ / "in").string()}, byte_encoder(), {}, folder_ / "cache");
  };
  FaultyFileSystem counting;
  attempt(counting);
  const int64_t calls_in_all = counting.calls();
  ASSERT_GE(calls_in_all, 15);
  for (const bool over_old : {false, true}) {
    for (const auto kind : {FaultKind::kError, FaultKind::kDiskFull, FaultKind::kKillBefore}) {
      for (int64_t n = 1; n <= calls_in_all; ++n) {
        SCOPED_TRACE("call " + std::to_string(n) + " of kind " + std::to_string(static_cast<int>(kind)));
        FaultyFileSystem sound;
        std::filesystem::remove_all(folder_ / "cache");
        if (over_old) {  // a cache of other content exists there
          folder_.write("in/1.txt", "the old text");
          set_mtime(folder_ / "in/1.txt", 1000);
          attempt(sound);
          folder_.write("in/1.txt", "the new text");
        }
        FaultyFileSystem faulty({.kind = kind, .at = n});
        if (kind == FaultKind::kKillBefore) {
          ASSERT_EQ(exit_code_of_child([&] { attempt(faulty); }), FaultyFileSystem::kKilled);
        } else {
          try {
            attempt(faulty);
          } catch (const WorldError&) {
            // Calls that do not need space may succeed on a full disk.
          }
        }
        ASSERT_EQ(ids_in(attempt(sound).path), expected);
        ASSERT_TRUE(attempt(sound).reused);
        for (const auto& entry : std::filesystem::directory_iterator(folder_ / "cache")) {
          ASSERT_NE(entry.path().extension(), ".part") << "left over: " << entry.path();
        }
      }
    }
  }
}

// A tokenizer of four tokens, the last of which ends a text.
TEST_F(Tokenize, WithARealTokenizer) {
  const auto tokenizer = Tokenizer::from_json(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 3, "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
              "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})",
                                              "test");
  const TextEncoder encoder = text_encoder(tokenizer);
  EXPECT_EQ(encoder.end_of_text, 3);
  EXPECT_EQ(encoder.vocab_size, 4);
  folder_.write("in/1.txt", "abba<|endoftext|>aab");
  folder_.write("in/2.txt", "bab");
  const auto result =
      tokenize_corpus(posix_file_system(), {(folder_ / "in").string()}, encoder, {}, folder_ / "cache");
  EXPECT_EQ(ids_in(result.path), (std::vector<int32_t>{2, 1, 0, 3, 0, 2, 3, 1, 2, 3}));
  // A document ends at the end of its file, and at each end in its text.
  EXPECT_EQ(open_token_corpus({result.path.string()}).document_ends(), (std::vector<int64_t>{4, 7, 10}));
}

// Special tokens in a text: taken as tokens, as text, or rejected, with their number reported.
TEST_F(Tokenize, SpecialTokensInATextFollowTheOption) {
  folder_.write("in/1.jsonl", "{\"text\": \"a\"}\n{\"text\": \"<s>b</s>c</s>\"}\n");
  folder_.write("in/2.txt", "d</s>");
  const auto tokenizer =
      Tokenizer::from_json(byte_tokenizer_json({.special = {"<s>", "</s>"}, .after = "</s>"}), "test");
  const auto with = [&](SpecialInText mode) {
    return tokenize_corpus(posix_file_system(), {(folder_ / "in").string()}, text_encoder(tokenizer, mode),
                           {}, folder_ / "cache");
  };
  const std::map<std::string, int64_t> counts{{"<s>", 1}, {"</s>", 3}};
  const auto as_token = with(SpecialInText::kToken);
  EXPECT_EQ(ids_in(as_token.path),
            (std::vector<int32_t>{'a', 257, 256, 'b', 257, 'c', 257, 257, 'd', 257, 257}));
  EXPECT_EQ(as_token.special, counts);
  const auto as_text = with(SpecialInText::kText);
  std::vector<int32_t> letters;
  for (const char* document : {"a", "<s>b</s>c</s>", "d</s>"}) {
    for (const char c : std::string(document)) letters.push_back(c);
    letters.push_back(257);
  }
  EXPECT_EQ(ids_in(as_text.path), letters);
  EXPECT_EQ(as_text.special, counts);
  expect_error(ErrorKind::kData, {"1.jsonl:2", "<s>", "special_in_text"},
               [&] { with(SpecialInText::kRefuse); });
  // Stored with the file.
  const auto again = with(SpecialInText::kToken);
  EXPECT_TRUE(again.reused);
  EXPECT_EQ(again.special, counts);
  EXPECT_EQ(to_string(counts), "</s> 3 times, <s> 1 time");
}

TEST_F(Tokenize, IdsBeyondTheModelAreRejectedWithTheirText) {
  folder_.write("in/1.jsonl", "{\"text\": \"fine\"}\n");
  const auto tokenizer = Tokenizer::from_json(byte_tokenizer_json({.special = {"</s>", "<image>"}}), "test");
  TextEncoder encoder = text_encoder(tokenizer);
  encoder.id_limit = 257;
  const auto run_it = [&] {
    return tokenize_corpus(posix_file_system(), {(folder_ / "in").string()}, encoder, {}, folder_ / "cache");
  };
  EXPECT_EQ(TokenFile(run_it().path).declared_vocab(), 257);
  folder_.write("in/2.jsonl", "{\"text\": \"fine\"}\n{\"text\": \"an <image>\"}\n");
  expect_error(ErrorKind::kData, {"2.jsonl:2", "<image>", "id 257", "ends at 257"}, [&] { run_it(); });
}

// The tokens that begin and end texts are part of a cached file's identity.
TEST_F(Tokenize, OtherEndsYieldOtherFiles) {
  folder_.write("in/1.txt", "a");
  const auto tokenizer = Tokenizer::from_json(byte_tokenizer_json({.special = {"</s>", "<end>"}}), "test");
  const auto with = [&](int32_t end) {
    TextEnds ends = tokenizer.ends();
    ends.end = end;
    return tokenize_corpus(posix_file_system(), {(folder_ / "in").string()},
                           text_encoder(tokenizer.with_ends(ends)), {}, folder_ / "cache");
  };
  EXPECT_EQ(ids_in(with(256).path), (std::vector<int32_t>{'a', 256}));
  const auto other = with(257);
  EXPECT_EQ(ids_in(other.path), (std::vector<int32_t>{'a', 257}));
  EXPECT_EQ(TokenFile(other.path).end_of_text(), 257);
}

}  // namespace
}  // namespace strata::data
