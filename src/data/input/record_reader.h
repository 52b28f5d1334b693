// Reads the records of one input file, one after another, in bounded memory, for `strata data`. A record that
// cannot be read is distinguished from the end, so that a build can count it, name it and continue.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "data/input/byte_source.h"
#include "data/input/line_index.h"
#include "data/pipeline/document.h"

namespace strata::data {

enum class RecordFormat { kAuto, kJsonl, kText, kCsv, kTsv, kParquet, kArrow, kWarc, kHtml };

struct RecordOptions {
  RecordFormat format = RecordFormat::kAuto;
  std::string text = "text";  // the fields that hold the text and the id
  std::string id = "id";
  // A longer record is kBadRecord and skipped, so that memory stays bounded whatever the file holds.
  int64_t max_record_bytes = int64_t{1} << 29;
};

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  // The next record. If it cannot be read: its id (if it has one), its line, and in `detail` a description
  // for a person; the next call continues after it. After kDamaged comes kEnd. Buffers of `document` are
  // reused: pass the same one again. WorldError if the disk fails.
  virtual ReadStatus next(Document& document, std::string& detail) = 0;
  // Stored bytes of the file that were taken so far, for progress.
  virtual int64_t bytes_read() const = 0;
};

// Whether the content is gone once it is read: standard input ("-"), a pipe, a device.
bool is_read_once(const Path& path);

// The format from name and content (.jsonl, .json, .ndjson, .txt, .md, .csv, .tsv, .parquet, .arrow,
// .feather, .warc, .wet, .html, .htm, .xhtml, optionally followed by .gz, .zst, .lz4, .bz2 or .xz); kText if
// neither decides; kAuto for input that is read once and has no such name: reading decides. ConfigError:
// missing path.
RecordFormat find_record_format(const Path& path);

// Whether several readers can read ranges of a file of this format concurrently: jsonl without compression.
bool is_splittable(const Path& path, RecordFormat format);

// `path` must exist; "-" is standard input. Ids of records without one: "NAME:LINE", NAME as given. `range`:
// the records that start in it, of a splittable file; `lines`, shared by the readers of one file, spares them
// from counting lines again. ConfigError for an option that this build lacks (Parquet without Arrow), naming
// what to do.
std::unique_ptr<RecordReader> open_records(const Path& path, const std::string& name,
                                           const RecordOptions& options, const FileRange& range = {},
                                           LineIndex* lines = nullptr);

}  // namespace strata::data
