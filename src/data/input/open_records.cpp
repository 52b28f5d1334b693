#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "data/input/arrow_support.h"
#include "data/input/record_readers.h"
#include "data/input/text_bytes.h"

namespace strata::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

struct NamedFormat {
  std::string_view ending;
  RecordFormat format;
};
constexpr NamedFormat kEndings[] = {
    {".jsonl", RecordFormat::kJsonl}, {".ndjson", RecordFormat::kJsonl},
    {".json", RecordFormat::kJsonl},  {".txt", RecordFormat::kText},
    {".text", RecordFormat::kText},   {".md", RecordFormat::kText},
    {".rst", RecordFormat::kText},    {".csv", RecordFormat::kCsv},
    {".tsv", RecordFormat::kTsv},     {".parquet", RecordFormat::kParquet},
    {".arrow", RecordFormat::kArrow}, {".feather", RecordFormat::kArrow},
    {".warc", RecordFormat::kWarc},   {".wet", RecordFormat::kWarc},
    {".html", RecordFormat::kHtml},   {".htm", RecordFormat::kHtml},
    {".xhtml", RecordFormat::kHtml},
};

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return result;
}

RecordFormat format_of_name(const Path& path) {
  std::string name = lower(path.filename().string());
  for (const std::string_view compressed : {".gz", ".zst", ".lz4", ".bz2", ".xz"}) {
    if (name.ends_with(compressed)) name.resize(name.size() - compressed.size());
  }
  for (const auto& [ending, format] : kEndings) {
    if (name.ends_with(ending)) return format;
  }
  return RecordFormat::kAuto;
}

RecordFormat format_of_content(std::string_view head) {
  if (head.starts_with("PAR1")) return RecordFormat::kParquet;
  if (head.starts_with("ARROW1")) return RecordFormat::kArrow;
  if (head.starts_with("WARC/")) return RecordFormat::kWarc;
  if (head.starts_with(kByteOrderMark)) head.remove_prefix(kByteOrderMark.size());
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  if (head.starts_with("{")) {
    const size_t next = head.find_first_not_of(" \t", 1);
    if (next != head.npos && (head[next] == '"' || head[next] == '}')) return RecordFormat::kJsonl;
  }
  // One array of objects: not JSON lines, but not text either; reading its lines reports it.
  if (head.starts_with("[")) {
    const size_t object = head.find_first_not_of(" \t\r\n", 1);
    const size_t next = object == head.npos ? object : head.find_first_not_of(" \t\r\n", object + 1);
    if (next != head.npos && head[object] == '{' && head[next] == '"') return RecordFormat::kJsonl;
  }
  const std::string start = lower(head.substr(0, 64));
  if (start.starts_with("<!doctype html") || start.starts_with("<html")) return RecordFormat::kHtml;
  return RecordFormat::kText;
}

[[noreturn]] void refuse_columns(const Path& path) {
  throw ConfigError("[{}] Parquet and Arrow files are not read from front to back; give a file",
                    path == kStandardInput ? "standard input" : path.string());
}

}  // namespace

bool is_read_once(const Path& path) {
  if (path == kStandardInput) return true;
  if (is_uri(path)) return false;
  std::error_code error;
  return std::filesystem::is_other(std::filesystem::status(path, error));
}

RecordFormat find_record_format(const Path& path) {
  const RecordFormat named = format_of_name(path);
  if (named != RecordFormat::kAuto || is_read_once(path)) return named;
  InputWindow window{ByteStream(open_source(path))};
  window.fill();
  return format_of_content(window.data());
}

bool is_splittable(const Path& path, RecordFormat format) {
  std::error_code error;
  if (format != RecordFormat::kJsonl || !std::filesystem::is_regular_file(path, error) ||
      find_compression(path) != Compression::kNone)
    return false;
  const ReadableFile file(path);
  std::string head(std::min<size_t>(file.size(), kPackedHeadBytes), '\0');
  file.read_at(0, head.data(), head.size());
  return packed_kind(head).empty();
}

std::unique_ptr<RecordReader> open_records(const Path& path, const std::string& name,
                                           const RecordOptions& options, const FileRange& range,
                                           LineIndex* lines) {
  RecordFormat format = options.format;
  if (format == RecordFormat::kAuto) format = find_record_format(path);
  if (!range.whole()) {
    STRATA_CHECK(is_splittable(path, format), "[{}] has no ranges", path.string());
    JsonlRange part;
    part.cut = range.begin > 0;
    const int64_t start = part.cut ? range.begin - 1 : 0;
    if (range.end >= 0) part.size = std::max<int64_t>(0, range.end - start);
    if (range.end >= 0 && range.end <= range.begin) part.size = 0;
    if (lines != nullptr) {
      part.lines_before = lines->lines_before(start);
    } else if (part.cut) {
      part.lines_before = LineIndex(path).lines_before(start);
    }
    return read_jsonl(InputWindow(ByteStream(open_source(path, {start, -1}), Compression::kNone)), name,
                      options, part);
  }
  if (format == RecordFormat::kParquet || format == RecordFormat::kArrow) {
    if (is_read_once(path)) refuse_columns(path);
    return format == RecordFormat::kParquet ? read_parquet(path, name, options)
                                            : read_arrow(path, name, options);
  }
  InputWindow window{ByteStream(open_source(path))};
  window.fill();
  if (format == RecordFormat::kAuto) format = format_of_content(window.data());
  // Packed bytes are one record that is not text, not many bad lines.
  if (!packed_kind(window.data()).empty()) return read_text(std::move(window), name, options);
  switch (format) {
    case RecordFormat::kJsonl:
      return read_jsonl(std::move(window), name, options, {});
    case RecordFormat::kCsv:
      return read_csv(std::move(window), name, options, ',');
    case RecordFormat::kTsv:
      return read_csv(std::move(window), name, options, '\t');
    case RecordFormat::kHtml:
      return read_html(std::move(window), name, options);
    case RecordFormat::kWarc:
      return read_warc(std::move(window), name, options);
    case RecordFormat::kParquet:
    case RecordFormat::kArrow:
      refuse_columns(path);
    default:
      return read_text(std::move(window), name, options);
  }
}

}  // namespace strata::data
