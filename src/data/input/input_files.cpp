#include "data/input/input_files.h"

#include <set>
#include <system_error>

#include "base/error.h"
#include "data/input/arrow_support.h"
#include "data/input/corpus_files.h"

namespace strata::data {
namespace {

constexpr std::pair<std::string_view, RecordFormat> kFormats[] = {
    {"auto", RecordFormat::kAuto},   {"jsonl", RecordFormat::kJsonl}, {"text", RecordFormat::kText},
    {"csv", RecordFormat::kCsv},     {"tsv", RecordFormat::kTsv},     {"parquet", RecordFormat::kParquet},
    {"arrow", RecordFormat::kArrow}, {"warc", RecordFormat::kWarc},   {"html", RecordFormat::kHtml},
};

}  // namespace

std::vector<InputFile> list_inputs(const std::vector<std::string>& patterns, RecordFormat format) {
  std::vector<InputFile> files;
  std::set<Path> seen;
  const auto add = [&](InputFile file) {
    if (!seen.insert(file.path).second) return;
    if (format != RecordFormat::kAuto) {
      file.format = format;
    } else {
      file.format = find_record_format(file.path);
    }
    file.splittable = is_splittable(file.path, file.format);
    files.push_back(std::move(file));
  };
  for (const std::string& pattern : patterns) {
    if (Path(pattern) == kStandardInput) {
      add({kStandardInput});
    } else if (is_uri(pattern)) {
      for (const UriFile& file : list_uri(pattern)) add({file.uri, RecordFormat::kAuto, file.size});
    } else {
      for (const Path& path : list_corpus_paths({pattern})) {
        std::error_code error;
        const auto size = std::filesystem::file_size(path, error);
        add({path, RecordFormat::kAuto, error ? 0 : static_cast<int64_t>(size)});
      }
    }
  }
  return files;
}

std::string_view format_name(RecordFormat format) {
  for (const auto& [name, value] : kFormats) {
    if (value == format) return name;
  }
  return {};
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const auto& [name, format] : kFormats) names.emplace_back(name);
  return names;
}

RecordFormat parse_format(std::string_view name) {
  std::string names;
  for (const auto& [known, format] : kFormats) {
    if (known == name) return format;
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  throw ConfigError("[format] found \"{}\", expected one of {}", name, names);
}

}  // namespace strata::data
