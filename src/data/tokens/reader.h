// Reads raw text document by document: .txt files (one document each, its bytes unchanged) and jsonl (one
// document a line, from one field), plain, gzip or zstd; records of the other formats of
// input/record_reader.h are read as jsonl.
// Several files are read and decompressed ahead on the reader's threads, in bounded memory (the budget, plus
// one document a thread); blocks come out in the order of the files regardless of which thread was first.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "data/input/corpus_files.h"

namespace strata::data {

// A block of one file: the whole text of a .txt file, or some whole lines of a jsonl file.
struct TextBlock {
  int64_t file = 0;        // index in the list of files
  int64_t first_line = 1;  // of jsonl, counted from 1
  std::string bytes;
  int64_t stored_bytes = 0;   // of the file, read for this block
  bool last = false;          // the file ends with this block
  uint64_t content_hash = 0;  // of the whole stored file, in its last block
};

struct ReaderOptions {
  int threads = 0;                         // 0: min(4, processors)
  int64_t block_bytes = int64_t{1} << 18;  // of jsonl lines; one longer line is a separate block
  int64_t budget_bytes = int64_t{64} << 20;
  std::string text_field = "text";  // of formats other than text and jsonl
};

class BlockReader {
 public:
  BlockReader(std::vector<CorpusFile> files, const ReaderOptions& options = {});
  ~BlockReader();

  // The next block in order; false at the end. Every file yields at least one block, an empty one if the file
  // is empty. Rethrows read errors: ConfigError for a missing file, DataError for damaged compression.
  bool next(TextBlock& block);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

// Calls `document` for every document of a block that is not empty; the text is valid during the call.
// `line`: of jsonl, counted from 1; 0 of a text file. DataError naming FILE:LINE for a line that a data build
// would not read either (data/pipeline/json_line.h).
void for_each_document(const TextBlock& block, const CorpusFile& file, const std::string& text_field,
                       FunctionRef<void(std::string_view text, int64_t line)> document);

// All documents of the files in order, on the calling thread (and the reader's own).
void read_documents(const std::vector<CorpusFile>& files, const std::string& text_field,
                    FunctionRef<void(std::string_view text)> document, const ReaderOptions& options = {});

}  // namespace strata::data
