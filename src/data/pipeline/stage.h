// The stages of a data build. Two kinds:
// - a DocumentStage decides on a document by itself: keeps it (perhaps with its text rewritten) or drops it
// with a published reason. Filters, masking, normalisation, decontamination.
// - a CorpusStage has to see all documents first. It takes a record of each into a file per part, then
// decides for the whole corpus; a second reading of the documents applies the decisions. Deduplication.
// A build cuts its input into parts only by size, so nothing here may depend on threads or ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/function_ref.h"
#include "data/pipeline/document.h"
#include "data/pipeline/stage_stats.h"
#include "data/text/text_view.h"

namespace strata::data {

class DocumentStage {
 public:
  virtual ~DocumentStage() = default;

  // The quantities that its thresholds see, in the order of StageStats::record's index.
  virtual std::vector<MetricSpec> metrics() const { return {}; }

  // Decides on one document; returns the reason for dropping it, empty to keep it. `text` is a view of the
  // document's text with words, lines and lengths computed once for all stages; text.replace() rewrites it.
  // `document` is for the other fields only. Called concurrently by several threads, each with its own text
  // and stats. Reasons are string literals.
  virtual std::string_view apply(TextView& text, const Document& document, StageStats& stats) const = 0;
};

// The position of a document among all documents that reach a stage: parts in order, documents in order in
// them.
struct DocumentNumber {
  uint32_t part = 0;
  uint32_t document = 0;  // counts the documents that reach the stage, from 0
  auto operator<=>(const DocumentNumber&) const =
      default;  // NOLINT(modernize-use-nullptr): reads <=> wrongly
};

// Bytes [begin, end) of a text that a stage cuts out.
struct TextSpan {
  uint32_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

// The decision of a CorpusStage on one document. Documents without one are unchanged.
struct Decision {
  uint32_t document = 0;
  bool drop = false;
  std::string_view reason;    // of dropping: a string literal
  bool has_original = false;  // dropped in favour of `original`
  DocumentNumber original{};
  std::vector<TextSpan> cut{};  // kept, without these; rising, apart from each other
};

// Takes the records of one part's documents, in order; one thread at a time uses a collector.
class PartCollector {
 public:
  virtual ~PartCollector() = default;
  virtual void add(TextView& text, const Document& document, StageStats& stats) = 0;
  // Puts the part's record file in place (atomically); without it nothing stays.
  virtual void finish() = 0;
};

// What decide() may use.
struct DecideContext {
  std::span<const Path> records;  // the file of each part, in order of the parts; all are there
  Path scratch;                   // a separate folder, removed afterwards
  int64_t memory_limit = 0;       // bytes
  FileSystem* files = nullptr;
};

class CorpusStage {
 public:
  virtual ~CorpusStage() = default;
  virtual std::vector<MetricSpec> metrics() const { return {}; }
  // `record`: the file that the collector of this part writes.
  virtual std::unique_ptr<PartCollector> collect(FileSystem& files, const Path& record) const = 0;
  // Calls `sink` for every part in order, with its decisions in the order of documents. The same records give
  // the same decisions whatever the threads and the memory.
  virtual void decide(const DecideContext& context, StageStats& stats,
                      FunctionRef<void(uint32_t part, std::span<const Decision>)> sink) const = 0;
};

}  // namespace strata::data
