// The documents of text files by number, in the order in which tokenize.h takes them: file by file, without
// those that have no text. Text files are read again each time, because an index of them would have to be
// kept up to date.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/input/corpus_files.h"

namespace strata::data {

// The id of a record. If it was not a string, `text` is its JSON, mostly a number.
struct RecordId {
  std::string text;
  bool is_json = false;
  bool operator==(const RecordId&) const = default;
};

class TextDocuments {
 public:
  // Counts the documents, for which it reads every file. DataError for a record that tokenizing would refuse.
  TextDocuments(std::vector<CorpusFile> files, std::string text_field);

  const std::vector<CorpusFile>& files() const { return files_; }
  int64_t documents() const { return starts_.back(); }

  struct Place {
    size_t file;
    int64_t number;  // of the document in its file, from 0
  };
  Place place(int64_t document) const;
  int64_t documents_of(size_t file) const { return starts_[file + 1] - starts_[file]; }
  int64_t first_of(size_t file) const { return starts_[file]; }

  // The ids of those of these documents that have one. Reads the files that contain them.
  std::map<int64_t, RecordId> ids(const std::vector<int64_t>& documents) const;
  // Every document with this id. Reads all files.
  std::vector<int64_t> find(std::string_view id) const;

 private:
  std::vector<CorpusFile> files_;
  std::string text_field_;
  std::vector<int64_t> starts_{0};  // the first document of each file, and the end of the last
};

}  // namespace strata::data
