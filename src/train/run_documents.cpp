#include "train/run_documents.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"

namespace strata::training {

struct RunDocuments::Part {
  int64_t sample, source;
  FileDocuments* file;
  int64_t document;  // in the file's table
  int64_t first_token, tokens;
};

namespace {

// The texts of a source; empty if they are token files.
std::vector<data::CorpusFile> texts_of(const config::RunConfig& config, const std::string& source) {
  std::vector<std::string> patterns = config.data.train;
  for (const config::DataSource& one : config.data.source)
    if (one.name == source) patterns = one.path;
  std::vector<data::CorpusFile> files = data::find_corpus_files(patterns);
  std::erase_if(files, [](const auto& file) { return file.kind == data::CorpusKind::kTokens; });
  return files;
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

RunDocuments::RunDocuments(const config::RunConfig& config, const config::RunData& data)
    : data_(data), selected_(data.sources.size()) {
  for (const data::SampleSourceSpec& source : data.sources) {
    const std::vector<data::CorpusFile> texts = texts_of(config, source.name);
    for (const data::TokenSegment& segment : source.corpus.segments()) {
      std::unique_ptr<FileDocuments>& file = files_[segment.file.get()];
      if (!file) file = std::make_unique<FileDocuments>(segment.file, texts, config.data.text_field);
    }
  }
}

RunDocuments::~RunDocuments() = default;

void RunDocuments::add_parts(int64_t source, int64_t sample, Range range, std::vector<Part>& parts) {
  const data::TokenCorpus& corpus = data_.sources[static_cast<size_t>(source)].corpus;
  corpus.for_each_part(
      range.begin, range.end - range.begin,
      [&](const data::TokenSegment& segment, int64_t first, int64_t count) {
        FileDocuments& file = *files_.at(segment.file.get());
        const data::DocumentTable& table = file.table();
        for (int64_t at = first; at < first + count;) {
          const int64_t document = table.at(at);
          const int64_t end = std::min(first + count, table.end(document));
          parts.push_back({sample, source, &file, document, at - table.begin(document), end - at});
          at = end;
        }
      });
}

std::vector<SampleDocument> RunDocuments::describe(const std::vector<Part>& parts) {
  std::map<FileDocuments*, std::vector<int64_t>> wanted;
  for (const Part& part : parts) wanted[part.file].push_back(part.document);
  std::map<FileDocuments*, const std::map<int64_t, DocumentName>*> names;
  for (const auto& [file, documents] : wanted) names[file] = &file->names(documents);
  std::vector<SampleDocument> out;
  for (const Part& part : parts) {
    out.push_back({.sample = part.sample,
                   .source = data_.sources[static_cast<size_t>(part.source)].name,
                   .name = names.at(part.file)->at(part.document),
                   .first_token = part.first_token,
                   .tokens = part.tokens});
  }
  return out;
}

std::vector<SampleDocument> RunDocuments::of(const data::SampleSource& samples, int64_t first,
                                             int64_t count) {
  std::vector<Part> parts;
  for (int64_t i = first; i < first + count; ++i) {
    const data::SampleSource::Place at = samples.place(i);
    samples.text_of(at, pieces_);
    for (const data::BestFitPlan::Piece& piece : pieces_)
      add_parts(at.source, at.global_sample, {piece.begin, piece.begin + piece.length}, parts);
  }
  return describe(parts);
}

// `find` returns the documents of a file.
template <typename Find>
bool RunDocuments::select_all(const Find& find) {
  std::map<const data::TokenFile*, std::vector<int64_t>> found;
  bool any = false;
  for (const auto& [file, documents] : files_) {
    found[file] = find(*documents);
    any = any || !found[file].empty();
  }
  for (size_t source = 0; source < data_.sources.size(); ++source) {
    int64_t start = 0;
    for (const data::TokenSegment& segment : data_.sources[source].corpus.segments()) {
      for (const int64_t document : found.at(segment.file.get())) {
        const data::DocumentTable& table = files_.at(segment.file.get())->table();
        const int64_t begin = std::max(table.begin(document), segment.begin);
        const int64_t end = std::min(table.end(document), segment.begin + segment.tokens);
        if (begin < end)
          selected_[source].push_back({start + begin - segment.begin, start + end - segment.begin});
      }
      start += segment.tokens;
    }
  }
  return any;
}

std::vector<Path> RunDocuments::files() const {
  std::set<Path> all;
  for (const auto& [file, documents] : files_)
    for (Path& path : documents->files()) all.insert(std::move(path));
  return {all.begin(), all.end()};
}

bool RunDocuments::select(const std::string& document) {
  for (auto& ranges : selected_) ranges.clear();
  bool found = select_all([&](FileDocuments& file) { return file.find_id(document); });
  const std::vector<Path> files = this->files();
  const size_t colon = document.rfind(':');
  const bool is_number = colon == std::string::npos;
  const std::optional<int64_t> number =
      whole_number(std::string_view(document).substr(is_number ? 0 : colon + 1));
  if (!found && number && is_number && files.size() > 1) {
    throw ConfigError(
        "[--document {}] no document has this id, and the number is not enough: the run reads {} files. Give "
        "FILE:NUMBER, such as {}:{}",
        document, files.size(), files.front().string(), document);
  }
  if (!found && number && !files.empty()) {
    const Path file = is_number ? files.front() : Path(document.substr(0, colon));
    found = select_all([&](FileDocuments& in) {
      const std::optional<int64_t> one = in.find_number(file, *number);
      return one ? std::vector<int64_t>{*one} : std::vector<int64_t>();
    });
  }
  if (!found) {
    throw ConfigError(
        "[--document {}] found no such document in the run's {} files; expected an id of the texts, or FILE:NUMBER "
        "with the number of a document from 0",
        document, files.size());
  }
  return std::any_of(selected_.begin(), selected_.end(), [](const auto& ranges) { return !ranges.empty(); });
}

std::vector<SampleDocument> RunDocuments::selected_of(const data::SampleSource& samples, int64_t first,
                                                      int64_t count) {
  std::vector<Part> parts;
  for (int64_t i = first; i < first + count; ++i) {
    const data::SampleSource::Place at = samples.place(i);
    const std::vector<Range>& selected = selected_[static_cast<size_t>(at.source)];
    if (selected.empty()) continue;
    samples.text_of(at, pieces_);
    for (const data::BestFitPlan::Piece& piece : pieces_) {
      for (const Range& range : selected) {
        const Range common{std::max(range.begin, piece.begin),
                           std::min(range.end, piece.begin + piece.length)};
        if (common.begin < common.end) add_parts(at.source, at.global_sample, common, parts);
      }
    }
  }
  return parts.empty() ? std::vector<SampleDocument>() : describe(parts);
}

}  // namespace strata::training
