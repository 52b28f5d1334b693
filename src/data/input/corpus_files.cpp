#include "data/input/corpus_files.h"

#include <algorithm>
#include <array>
#include <set>
#include <system_error>

#include "base/error.h"
#include "data/input/byte_stream.h"

namespace strata::data {
namespace {

constexpr size_t kSniffBytes = 1 << 16;

bool file_exists(const Path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](auto ending) { return name.ends_with(ending); });
}

// Files that stand beside a token file and are no source themselves.
bool accompanies_tokens(const Path& path) {
  const std::string name = path.filename().string();
  if (ends_with_any(name, {".ds.index", ".ds.loss", ".ds.metadata", ".lock"})) return true;
  if (ends_with_any(name, {".idx", ".json", ".documents"}))
    return file_exists(Path(path).replace_extension(".bin"));
  return false;
}

// From the first bytes: a JSON object that starts the file, with more than punctuation after the brace.
bool looks_like_jsonl(std::string_view head) {
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  const size_t brace = head.find_first_not_of(" \t\r\n");
  if (brace == std::string_view::npos || head[brace] != '{') return false;
  const size_t next = head.find_first_not_of(" \t", brace + 1);
  return next != std::string_view::npos && (head[next] == '"' || head[next] == '}');
}

std::vector<Path> expand(const std::string& pattern) {
  std::vector<Path> found = expand_glob(pattern);
  if (found.empty() && file_exists(pattern + ".bin") && file_exists(pattern + ".idx"))
    found = {Path(pattern + ".bin")};
  // An index named on its own stands for its pair.
  if (found.size() == 1 && found[0].extension() == ".idx") found[0].replace_extension(".bin");
  return found;
}

}  // namespace

CorpusFile classify_corpus_file(const Path& path) {
  CorpusFile file{path, CorpusKind::kText, Compression::kNone};
  std::string name = path.filename().string();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (ends_with_any(name, {".bin", ".ds"})) {
    file.kind = CorpusKind::kTokens;
    return file;
  }
  if (ends_with_any(name, {".parquet", ".arrow", ".warc", ".warc.gz", ".npy", ".csv", ".html"})) {
    throw ConfigError(
        "[{}] files of this kind cannot be read here yet; expected .txt, .jsonl (also .gz, .zst) or "
        "token files",
        path.string());
  }
  file.compression = find_compression(path);
  if (ends_with_any(name, {".gz"}))
    name.resize(name.size() - 3);
  else if (ends_with_any(name, {".zst"}))
    name.resize(name.size() - 4);
  if (ends_with_any(name, {".jsonl", ".ndjson"})) {
    file.kind = CorpusKind::kJsonl;
  } else if (!ends_with_any(name, {".txt", ".md"})) {
    std::string head(kSniffBytes, '\0');
    ByteStream stream(path, file.compression);
    head.resize(stream.read(head.data(), head.size()));
    if (looks_like_jsonl(head)) file.kind = CorpusKind::kJsonl;
  }
  return file;
}

std::vector<Path> list_corpus_paths(const std::vector<std::string>& patterns) {
  std::vector<Path> paths;
  std::set<Path> seen;
  for (const std::string& pattern : patterns) {
    const std::vector<Path> found = expand(pattern);
    size_t used = 0;
    for (const Path& path : found) {
      const std::string name = path.filename().string();
      const bool named_itself = found.size() == 1 && path == Path(pattern);
      if (!named_itself && (name.starts_with(".") || name.ends_with(".part") || accompanies_tokens(path)))
        continue;
      ++used;
      if (seen.insert(path).second) paths.push_back(path);
    }
    if (used == 0) {
      throw ConfigError("[{}] finds no file; check the path (it is relative to {})", pattern,
                        std::filesystem::current_path().string());
    }
  }
  return paths;
}

std::vector<CorpusFile> find_corpus_files(const std::vector<std::string>& patterns) {
  std::vector<CorpusFile> files;
  for (const Path& path : list_corpus_paths(patterns)) files.push_back(classify_corpus_file(path));
  return files;
}

}  // namespace strata::data
