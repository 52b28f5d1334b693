// The documents that the samples of a run are made of.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/resolve.h"
#include "data/samples/sample_source.h"
#include "train/file_documents.h"

namespace strata::training {

// Consecutive tokens of one document in a sample.
struct SampleDocument {
  int64_t sample = 0;  // its global number, as in data.skip
  std::string source;
  DocumentName name = {};
  int64_t first_token = 0;  // counted from the begin of the document
  int64_t tokens = 0;       // without the one after them that is only predicted
};

// Used by one thread.
class RunDocuments {
 public:
  // `data`: of this configuration; must outlive it.
  RunDocuments(const config::RunConfig& config, const config::RunData& data);
  ~RunDocuments();

  // The documents of samples [first, first + count), numbered as `samples` does, in the order of their places.
  std::vector<SampleDocument> of(const data::SampleSource& samples, int64_t first, int64_t count);

  // Selects documents for selected_of(): those with this id, else FILE:NUMBER, else NUMBER if there is one file.
  // Returns whether any of them is trained on, rather than held out. ConfigError if there is no such document.
  bool select(const std::string& document);
  // As of(), for the selected documents only.
  std::vector<SampleDocument> selected_of(const data::SampleSource& samples, int64_t first, int64_t count);

 private:
  struct Part;
  struct Range {
    int64_t begin, end;  // in a source's corpus
  };
  void add_parts(int64_t source, int64_t sample, Range range, std::vector<Part>& parts);
  std::vector<SampleDocument> describe(const std::vector<Part>& parts);
  template <typename Find>
  bool select_all(const Find& find);
  std::vector<Path> files() const;

  const config::RunData& data_;
  std::map<const data::TokenFile*, std::unique_ptr<FileDocuments>> files_;
  std::vector<std::vector<Range>> selected_;  // by source
  std::vector<data::BestFitPlan::Piece> pieces_;
};

}  // namespace strata::training
