// The files that a source of a data build reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/input/record_reader.h"

namespace strata::data {

struct InputFile {
  Path path;                                  // a file, a URI, or "-" for standard input
  RecordFormat format = RecordFormat::kAuto;  // kAuto only for input that is read once
  int64_t size = 0;                           // stored bytes; 0 if not known before reading
  bool splittable = false;                    // may be read in ranges
};

// Each pattern is a file, a folder (all files in it, at any depth), a glob, a URI of an object or of a folder
// of them, or "-". In the patterns' order, sorted within one, each file once; hidden files and *.part are
// left out of folders and globs. `format` other than kAuto holds for all. ConfigError naming a pattern that
// finds nothing.
std::vector<InputFile> list_inputs(const std::vector<std::string>& patterns,
                                   RecordFormat format = RecordFormat::kAuto);

// The name of a format as recipes write it: "jsonl", "text", "csv", "tsv", "parquet", "arrow", "warc",
// "html", "auto".
std::string_view format_name(RecordFormat format);
// All of them, "auto" first.
std::vector<std::string> format_names();
// ConfigError with all names for another one.
RecordFormat parse_format(std::string_view name);

}  // namespace strata::data
