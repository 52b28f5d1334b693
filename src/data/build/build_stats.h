// The counts of one part of a build: saved in a separate file once the part is done, and summed at the end.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/pipeline/stage_stats.h"

namespace strata::data {

// Documents by length, in powers of two of bytes: bin k holds lengths of 2^k to 2^(k+1)-1; 0 and 1 in the
// first.
struct LengthHistogram {
  static constexpr size_t kBins = 40;
  std::array<int64_t, kBins> bins{};
  void record(size_t bytes);
};

// A document that was dropped, or could not be read, as the report shows it.
struct DropExample {
  std::string id, file, detail, text;  // text: the beginning
  int64_t line = 0;
};

struct DropReason {
  int64_t documents = 0;
  int64_t bytes = 0;  // of text
  std::vector<DropExample> examples;
};

// Documents that a deduplication found to be alike.
struct AlikeDocuments {
  int64_t size = 0;
  std::string kept;                  // the id of the one that stayed
  std::vector<std::string> dropped;  // ids of the first others
};

// A row of the pipeline: reading (row 0) or a stage (row i + 1).
struct RowStats {
  int64_t documents_in = 0, documents_out = 0;
  int64_t bytes_in = 0, bytes_out = 0;  // of text
  std::map<std::string, DropReason, std::less<>> dropped;
  StageStats stage;
  std::vector<AlikeDocuments> alike;  // the largest clusters, of a deduplication
};

std::string to_json(const RowStats& row);
RowStats row_from_json(std::string_view json);  // DataError

struct BuildStats {
  static constexpr size_t kExamples = 3;  // of each reason

  int64_t stored_bytes = 0;  // of the input files
  std::vector<RowStats> rows;
  LengthHistogram lengths_in, lengths_out;
  int64_t tokens = 0;
  std::map<std::string, int64_t> special;  // special tokens that texts spell out, and how often
  // By source: documents, text and tokens that were kept.
  struct Kept {
    int64_t documents_in = 0, documents = 0, bytes = 0, tokens = 0;
  };
  std::vector<Kept> sources;
  std::map<int32_t, uint64_t> input_hashes;  // content of each input file's chunks in this part, by file

  void drop(size_t row, std::string_view reason, int64_t bytes, DropExample&& example);
  void add(const BuildStats& other);  // `other` is of later parts
  std::string to_json() const;
  static BuildStats from_json(std::string_view json);  // DataError
};

}  // namespace strata::data
