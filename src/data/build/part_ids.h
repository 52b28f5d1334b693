// The ids of the documents that reached a deduplication, by their numbers.
#pragma once

#include <map>

#include "data/build/document_file.h"
#include "data/build/job.h"

namespace strata::data {

class PartIds {
 public:
  // `phase`: the phase that the deduplication ended.
  PartIds(const BuildJob& job, size_t phase) : job_(job), phase_(phase) {}

  // Valid as long as this object.
  DocumentId operator()(const DocumentNumber& number) {
    auto found = files_.find(number.part);
    if (found == files_.end())
      found = files_.emplace(number.part, IdFile(job_.part_file(phase_, number.part, "ids"))).first;
    return found->second[number.document];
  }

 private:
  const BuildJob& job_;
  size_t phase_;
  std::map<uint32_t, IdFile> files_;
};

}  // namespace strata::data
