#include "data/tokens/document_table.h"

#include <algorithm>

#include "data/tokens/token_corpus.h"

namespace strata::data {

DocumentTable::DocumentTable(std::shared_ptr<const TokenFile> file) : file_(std::move(file)) {
  if (!file_->has_documents()) ends_ = TokenCorpus({{file_, 0, file_->tokens()}}).document_ends();
}

int64_t DocumentTable::documents() const {
  return file_->has_documents() ? file_->documents() : std::ssize(ends_);
}

int64_t DocumentTable::end(int64_t document) const {
  return file_->has_documents() ? file_->document_end(document) : ends_[static_cast<size_t>(document)];
}

int64_t DocumentTable::at(int64_t token) const {
  if (file_->has_documents()) return file_->first_document_ending_after(token);
  return std::upper_bound(ends_.begin(), ends_.end(), token) - ends_.begin();
}

}  // namespace strata::data
