// The documents of one token file of a run, under the names that users know: those of the texts from which the
// run made it, or the numbers in the file, with the ids of the data build that wrote it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/input/corpus_files.h"
#include "data/tokens/document_table.h"
#include "data/tokens/text_documents.h"

namespace strata::training {

struct DocumentName {
  std::string file;
  int64_t number = 0;                     // in this file, from 0
  std::optional<data::RecordId> id = {};  // nullopt: it has none
};

// Files are read when they are first needed. Used by one thread.
class FileDocuments {
 public:
  // `texts`: the files that the run tokenized to this one; empty: it was given as a token file.
  FileDocuments(std::shared_ptr<const data::TokenFile> file, std::vector<data::CorpusFile> texts,
                std::string text_field);

  const data::DocumentTable& table();

  // The names of documents of the table; valid until the next call. DataError if the texts have changed.
  const std::map<int64_t, DocumentName>& names(const std::vector<int64_t>& documents);
  // The documents of the table with this id.
  std::vector<int64_t> find_id(const std::string& id);
  // The document with this number in this file.
  std::optional<int64_t> find_number(const Path& file, int64_t number);
  // The files that find_number() takes.
  std::vector<Path> files() const;

 private:
  struct Build {  // the documents of a data build
    std::vector<data::CorpusFile> files;
    int64_t before = 0, documents = 0;  // those of other sources before this file's, and all
  };
  static std::optional<Build> find_build(const Path& tokens);
  // nullptr: there are none.
  const data::TextDocuments* texts();

  std::shared_ptr<const data::TokenFile> file_;
  std::optional<data::DocumentTable> table_;
  bool is_text_;  // made by the run of its texts
  std::string text_field_;
  std::vector<data::CorpusFile> text_files_;
  int64_t before_ = 0;  // documents of the texts that precede the first one of the table
  std::optional<data::TextDocuments> texts_;
  std::map<int64_t, DocumentName> names_;  // all that were asked for
};

}  // namespace strata::training
