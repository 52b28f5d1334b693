// The file that a corpus stage keeps for one part: blocks of documents, each with its own hash, under a tag
// that identifies the stage and the parameters that wrote it. Little-endian; numbers in a block are at
// multiples of 8.
//
//   file   = "STRDEDUP", u64 tag, blocks, end
//   block  = u64 payload bytes (a multiple of 8), u64 documents, u64 hash of both and the payload, payload
//   end    = u64 ~0, u64 documents in all, u64 hash of both and the tag
//
// A file takes its final name when it is complete. A truncated or altered file, or one of another stage, is a
// DataError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/function_ref.h"
#include "data/pipeline/stage.h"

namespace strata::data::dedup {

class RecordWriter {
 public:
  RecordWriter(FileSystem& files, Path path, uint64_t tag);
  ~RecordWriter();  // without finish() nothing stays
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  // Columns of the next block; each is filled up to a multiple of 8 bytes.
  void column(const void* bytes, size_t size);
  template <typename T>
  void column(std::span<const T> values) {
    column(values.data(), values.size_bytes());
  }
  void end_block(uint64_t documents);
  void finish();

 private:
  FileSystem& files_;
  Path path_, temporary_;
  std::unique_ptr<WritableFile> file_;
  uint64_t tag_;
  uint64_t documents_ = 0;
  std::string payload_;
};

// Takes columns off a block in the order in which they were written.
class BlockCursor {
 public:
  BlockCursor(std::span<const std::byte> payload, const Path& path) : rest_(payload), path_(&path) {}
  template <typename T>
  std::span<const T> column(uint64_t values) {
    return {reinterpret_cast<const T*>(take(values, sizeof(T)).data()), values};
  }
  void skip(uint64_t bytes) { take(bytes, 1); }
  [[noreturn]] void fail(std::string_view what) const;  // DataError

 private:
  std::span<const std::byte> take(uint64_t values, size_t size);

  std::span<const std::byte> rest_;
  const Path* path_;
};

// A part's file, mapped.
class RecordFile {
 public:
  RecordFile(const Path& path, uint64_t tag, bool verify);  // verify: the hashes too
  struct Block {
    uint64_t documents = 0;
    std::span<const std::byte> payload{};
  };
  const std::vector<Block>& blocks() const { return blocks_; }
  uint64_t documents() const { return documents_; }
  BlockCursor cursor(const Block& block) const { return {block.payload, path_}; }

 private:
  Path path_;
  MappedFile file_;
  std::vector<Block> blocks_;
  uint64_t documents_ = 0;
};

// The files of all parts. Documents have numbers through all parts here, in order.
class Records {
 public:
  // Reads every file once, with its hashes.
  Records(const DecideContext& context, uint64_t tag);

  uint64_t documents() const { return first_.back(); }
  uint32_t parts() const { return static_cast<uint32_t>(paths_.size()); }
  uint64_t first_of(uint32_t part) const { return first_[part]; }
  DocumentNumber number(uint64_t document) const;
  RecordFile open(uint32_t part) const { return {paths_[part], tag_, false}; }
  // Every block in order, one file at a time.
  void for_each_block(FunctionRef<void(const RecordFile::Block&, BlockCursor, uint64_t first)> use) const;

 private:
  std::span<const Path> paths_;
  uint64_t tag_;
  std::vector<uint64_t> first_;  // by part, then the total number of documents
};

// Tags differ where any parameter does that the records depend on.
uint64_t record_tag(std::string_view description);

}  // namespace strata::data::dedup
