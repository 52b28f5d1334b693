// Records of one input file, one after another, in bounded memory: what `strata data` reads. A record that
// cannot be read is told apart from the end, so that a build can count it, name it and go on.
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
  // The next record. Where it cannot be read: its id (where there is one), its line, and in `detail` what was
  // found, for a person; the next call goes on behind it. After kDamaged comes kEnd. Buffers of `document`
  // are reused: give the same one again. WorldError where the disk fails.
  virtual ReadStatus next(Document& document, std::string& detail) = 0;
  // Stored bytes of the file that were taken so far, for progress.
  virtual int64_t bytes_read() const = 0;
};

// Whether what lies there is gone once it is read: standard input ("-"), a pipe, a device.
bool is_read_once(const Path& path);

// The format from name and content (.jsonl, .json, .ndjson, .txt, .md, .csv, .tsv, .parquet, .arrow,
// .feather, .warc, .wet, .html, .htm, .xhtml, with .gz, .zst, .lz4, .bz2 or .xz
// behind); kText for what nothing tells; kAuto for
// what is read once and has no such name: reading tells. ConfigError: missing path.
RecordFormat find_record_format(const Path& path);

// Whether a file of this format can be read in ranges by several readers at once: jsonl without compression.
bool is_splittable(const Path& path, RecordFormat format);

// `path` must exist; "-" is standard input. Ids of records without one: "NAME:LINE", NAME as given. `range`:
// the records that start in it, of a splittable file; `lines`, shared by the readers of one file, spares them
// from counting lines again. ConfigError for an option that this build lacks (Parquet without Arrow), naming
// what to do.
std::unique_ptr<RecordReader> open_records(const Path& path, const std::string& name,
                                           const RecordOptions& options, const FileRange& range = {},
                                           LineIndex* lines = nullptr);

}  // namespace strata::data
