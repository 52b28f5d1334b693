// The documents of one part between two phases of a build, and the small files next to them. Written and read
// by one build on one kind of machine: little-endian, without versions.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/build/output_file.h"
#include "data/pipeline/stage.h"

namespace strata::data {

// A document with the file that it came from.
struct StoredDocument {
  Document document;
  int32_t file = 0;
};

class DocumentFileWriter {
 public:
  DocumentFileWriter(FileSystem& files, const Path& path) : out_(files, path) {}
  void append(std::string_view text, const Document& document, int32_t file);
  void finish() { out_.finish(); }

 private:
  OutputFile out_;
};

class DocumentFileReader {
 public:
  explicit DocumentFileReader(const Path& path);
  // False at the end. DataError for a file that was cut.
  bool next(StoredDocument& out);
  int64_t bytes_read() const { return static_cast<int64_t>(offset_ - (end_ - begin_)); }

 private:
  void need(size_t bytes);
  ReadableFile file_;
  uint64_t offset_ = 0;  // in the file, after the buffered bytes
  std::string buffer_;
  size_t begin_ = 0, end_ = 0;
};

// The id of a document, and whether it is already JSON: a number in the input stays a number.
struct DocumentId {
  std::string_view text;
  bool is_json = false;
};
void append_id(std::string& json, const DocumentId& id);

// The ids of a part's documents by number, and where they came from: for audits that name another document.
class IdFileWriter {
 public:
  IdFileWriter(FileSystem& files, const Path& path) : out_(files, path) {}
  void append(const DocumentId& id);
  void finish();

 private:
  OutputFile out_;
  std::vector<uint64_t> ends_;
  uint64_t size_ = 0;
};
class IdFile {
 public:
  explicit IdFile(const Path& path);
  DocumentId operator[](uint32_t document) const;

 private:
  std::string name_;
  MappedFile file_;
  uint64_t count_ = 0;
};

// Decisions of one part.
void write_decisions(FileSystem& files, const Path& path, std::span<const Decision> decisions);
// The reasons are views of `reasons`, to which unknown ones are added.
std::vector<Decision> read_decisions(const Path& path, std::set<std::string>& reasons);

}  // namespace strata::data
