// All records of a file, for comparison in tests.
#pragma once

#include <string>
#include <vector>

#include "data/input/record_reader.h"

namespace strata::data {

struct ReadRecord {
  ReadStatus status = ReadStatus::kEnd;
  Document document;
  std::string detail;
};

inline std::vector<ReadRecord> read_records(RecordReader& reader) {
  std::vector<ReadRecord> records;
  for (;;) {
    ReadRecord record;
    record.status = reader.next(record.document, record.detail);
    if (record.status == ReadStatus::kEnd) return records;
    records.push_back(std::move(record));
  }
}

inline std::vector<ReadRecord> read_records(const Path& path, const RecordOptions& options = {},
                                            const FileRange& range = {}) {
  return read_records(*open_records(path, path.filename().string(), options, range));
}

}  // namespace strata::data
