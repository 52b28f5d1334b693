#include "train/file_documents.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"

namespace strata::training {
namespace {

bool is_same_file(const Path& a, const Path& b) {
  const auto whole = [](const Path& path) { return std::filesystem::absolute(path).lexically_normal(); };
  return whole(a) == whole(b);
}

}  // namespace

FileDocuments::FileDocuments(std::shared_ptr<const data::TokenFile> file, std::vector<data::CorpusFile> texts,
                             std::string text_field)
    : file_(std::move(file)),
      is_text_(!texts.empty()),
      text_field_(std::move(text_field)),
      text_files_(std::move(texts)) {
  if (is_text_) return;
  if (auto build = find_build(file_->name())) {
    text_files_ = std::move(build->files);
    before_ = build->before;
    text_field_ = "text";
  }
}

const data::DocumentTable& FileDocuments::table() {
  if (!table_) table_.emplace(file_);
  return *table_;
}

// OUT/tokens/SOURCE.bin contains the documents of OUT/documents that are of this source; sources come in the
// order of the manifest.
std::optional<FileDocuments::Build> FileDocuments::find_build(const Path& tokens) {
  const Path folder = tokens.parent_path().parent_path();
  std::error_code error;
  if (tokens.parent_path().filename() != "tokens" ||
      !std::filesystem::exists(folder / "manifest.json", error) ||
      !std::filesystem::is_directory(folder / "documents", error))
    return std::nullopt;
  const auto manifest = parse_json_or_discard<nlohmann::json>(read_file(folder / "manifest.json"));
  if (!manifest.is_object() || !manifest.contains("sources")) return std::nullopt;
  Build build;
  bool found = false;
  for (const auto& source : manifest.at("sources")) {
    found = found || source.value("name", std::string()) == tokens.stem().string();
    const int64_t documents = source.value("documents", int64_t{0});
    if (!found) build.before += documents;
    build.documents += documents;
  }
  if (!found) return std::nullopt;
  build.files = data::find_corpus_files({(folder / "documents").string()});
  return build;
}

const data::TextDocuments* FileDocuments::texts() {
  if (text_files_.empty()) return nullptr;
  if (!texts_) texts_.emplace(text_files_, text_field_);
  const int64_t here = texts_->documents() - before_;
  if (is_text_ && here != table().documents()) {
    throw DataError(
        "[{}] and the run's other texts contain {} documents: the run tokenized {}. Restore the texts",
        text_files_.front().path.string(), here, table().documents());
  }
  // Documents of a build may have been changed or removed; its token files remain usable.
  return here >= table().documents() ? &*texts_ : nullptr;
}

const std::map<int64_t, DocumentName>& FileDocuments::names(const std::vector<int64_t>& documents) {
  std::vector<int64_t> in_texts;  // those not asked for before
  for (const int64_t document : documents)
    if (!names_.contains(document)) in_texts.push_back(before_ + document);
  if (in_texts.empty()) return names_;
  const data::TextDocuments* texts = this->texts();
  std::map<int64_t, data::RecordId> ids;
  if (texts != nullptr) ids = texts->ids(in_texts);
  for (const int64_t in_text : in_texts) {
    DocumentName& name = names_[in_text - before_];
    name = {.file = file_->name(), .number = in_text - before_};
    if (is_text_) {
      const data::TextDocuments::Place place = texts->place(in_text);
      name.file = texts->files()[place.file].path.string();
      name.number = place.number;
    }
    if (const auto id = ids.find(in_text); id != ids.end()) name.id = id->second;
  }
  return names_;
}

std::vector<int64_t> FileDocuments::find_id(const std::string& id) {
  std::vector<int64_t> out;
  const data::TextDocuments* texts = this->texts();
  if (texts == nullptr) return out;
  for (const int64_t found : texts->find(id)) {
    const int64_t document = found - before_;
    if (document >= 0 && document < table().documents()) out.push_back(document);
  }
  return out;
}

std::optional<int64_t> FileDocuments::find_number(const Path& file, int64_t number) {
  if (number < 0) return std::nullopt;
  if (!is_text_) {
    const bool is_it = is_same_file(file, file_->name()) && number < table().documents();
    return is_it ? std::optional(number) : std::nullopt;
  }
  for (size_t i = 0; i < text_files_.size(); ++i) {
    if (!is_same_file(file, text_files_[i].path)) continue;
    const data::TextDocuments* texts = this->texts();
    if (number < texts->documents_of(i)) return texts->first_of(i) + number;
  }
  return std::nullopt;
}

std::vector<Path> FileDocuments::files() const {
  if (!is_text_) return {Path(file_->name())};
  std::vector<Path> out;
  for (const data::CorpusFile& file : text_files_) out.push_back(file.path);
  return out;
}

}  // namespace strata::training
