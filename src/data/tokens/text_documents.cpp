#include "data/tokens/text_documents.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/function_ref.h"
#include "data/input/byte_stream.h"
#include "data/input/record_reader.h"

namespace strata::data {
namespace {

bool is_empty(const CorpusFile& file) {
  char byte = 0;
  return ByteStream(file.path, file.compression).read(&byte, 1) == 0;
}

// Calls `visit` for each document of a file, until it returns false. Texts have no id.
void for_each_record(const CorpusFile& file, const std::string& text_field,
                     FunctionRef<bool(int64_t number, const Document&)> visit) {
  Document document;
  if (file.kind == CorpusKind::kText) {
    if (!is_empty(file)) visit(0, document);
    return;
  }
  RecordOptions options;
  options.format = file.kind == CorpusKind::kJsonl ? RecordFormat::kJsonl : RecordFormat::kAuto;
  options.text = text_field;
  if (file.kind == CorpusKind::kJsonl) options.max_record_bytes = std::numeric_limits<int64_t>::max();
  const std::string name = file.path.string();
  const auto reader = open_records(file.path, name, options);
  std::string detail;
  for (int64_t number = 0;;) {
    detail.clear();
    const ReadStatus status = reader->next(document, detail);
    if (status == ReadStatus::kEnd) return;
    if (status == ReadStatus::kEmptyText || status == ReadStatus::kNotText) continue;
    if (status != ReadStatus::kDocument) {
      throw DataError("[{}:{}] {}: {}; the file has changed since it was tokenized. Restore it", name,
                      document.line, read_reason(status), detail);
    }
    // Readers give records without an id a name of this form.
    if (document.id == name + ":" + std::to_string(document.line)) document.id.clear();
    if (!visit(number++, document)) return;
  }
}

}  // namespace

TextDocuments::TextDocuments(std::vector<CorpusFile> files, std::string text_field)
    : files_(std::move(files)), text_field_(std::move(text_field)) {
  for (const CorpusFile& file : files_) {
    int64_t count = 0;
    for_each_record(file, text_field_, [&](int64_t, const Document&) {
      ++count;
      return true;
    });
    starts_.push_back(starts_.back() + count);
  }
}

TextDocuments::Place TextDocuments::place(int64_t document) const {
  STRATA_CHECK(document >= 0 && document < documents(), "document {} of {}", document, documents());
  const auto file =
      static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), document) - starts_.begin()) - 1;
  return {file, document - starts_[file]};
}

std::map<int64_t, RecordId> TextDocuments::ids(const std::vector<int64_t>& documents) const {
  std::map<int64_t, RecordId> out;
  std::set<int64_t> wanted(documents.begin(), documents.end());
  while (!wanted.empty()) {
    const size_t file = place(*wanted.begin()).file;
    for_each_record(files_[file], text_field_, [&](int64_t number, const Document& document) {
      const int64_t here = starts_[file] + number;
      if (wanted.erase(here) != 0 && !document.id.empty()) out[here] = {document.id, document.id_is_json};
      return !wanted.empty() && *wanted.begin() < starts_[file + 1];
    });
    // A file that has become shorter has no ids for them.
    std::erase_if(wanted, [&](int64_t document) { return document < starts_[file + 1]; });
  }
  return out;
}

std::vector<int64_t> TextDocuments::find(std::string_view id) const {
  std::vector<int64_t> found;
  for (size_t file = 0; file < files_.size(); ++file) {
    for_each_record(files_[file], text_field_, [&](int64_t number, const Document& document) {
      if (document.id == id && !id.empty()) found.push_back(starts_[file] + number);
      return true;
    });
  }
  return found;
}

}  // namespace strata::data
