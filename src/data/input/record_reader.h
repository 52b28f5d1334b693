// Records of one input file, one after another, in bounded memory: what `strata data` reads. A record that
// cannot be read is told apart from the end, so that a build can count it, name it and go on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "data/pipeline/document.h"

namespace strata::data {

enum class RecordFormat { kAuto, kJsonl, kText, kCsv, kParquet, kArrow, kWarc, kHtml };

struct RecordOptions {
  RecordFormat format = RecordFormat::kAuto;
  std::string text = "text";  // the fields that hold the text and the id
  std::string id = "id";
};

// Bytes [begin, end) of an uncompressed jsonl or csv file: records that start in them. A whole file: {0, -1}.
struct FileRange {
  int64_t begin = 0;
  int64_t end = -1;
};

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  // The next record. Where it cannot be read: its id (where there is one), its line, and in `detail` what was
  // found, for a person; the next call goes on behind it. After kDamaged comes kEnd.
  virtual ReadStatus next(Document& document, std::string& detail) = 0;
  // Stored bytes of the file that were taken so far, for progress.
  virtual int64_t bytes_read() const = 0;
};

// The format from name and content (.jsonl, .json, .ndjson, .txt, .md, .csv, .tsv, .parquet, .arrow, .warc,
// .wet, .html, .htm, with .gz or .zst behind); kText for what nothing tells. ConfigError: missing path, an
// option that this build lacks (Parquet without Arrow), naming what to install.
RecordFormat find_record_format(const Path& path);

// Whether a file of this format can be read in ranges by several readers at once: jsonl without compression.
bool is_splittable(const Path& path, RecordFormat format);

// `path` must exist. Ids of records without one: "NAME:LINE", NAME as given.
std::unique_ptr<RecordReader> open_records(const Path& path, const std::string& name,
                                           const RecordOptions& options, const FileRange& range = {});

}  // namespace strata::data
