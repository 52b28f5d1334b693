#include "data/input/corpus_files.h"

#include <algorithm>
#include <array>
#include <set>
#include <system_error>

#include "base/error.h"
#include "data/input/byte_stream.h"
#include "data/input/record_reader.h"

namespace strata::data {
namespace {

bool file_exists(const Path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](auto ending) { return name.ends_with(ending); });
}

// Files that accompany a token file and are not sources themselves.
bool accompanies_tokens(const Path& path) {
  const std::string name = path.filename().string();
  if (ends_with_any(name, {".ds.index", ".ds.loss", ".ds.metadata", ".lock"})) return true;
  if (ends_with_any(name, {".idx", ".json", ".documents"}))
    return file_exists(Path(path).replace_extension(".bin"));
  return false;
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
  if (ends_with_any(name, {".npy"})) {
    throw ConfigError(
        "[{}] files of this kind cannot be read here; expected text, jsonl, Parquet or token files",
        path.string());
  }
  if (is_read_once(path)) {
    throw ConfigError(
        "[{}] is a pipe or a device, and is read more than once; write it into a file and give that",
        path.string());
  }
  file.compression = find_compression(path);
  switch (find_record_format(path)) {
    case RecordFormat::kText:
      break;
    case RecordFormat::kJsonl:
      file.kind = CorpusKind::kJsonl;
      break;
    default:
      file.kind = CorpusKind::kRecords;
  }
  return file;
}

std::vector<Path> list_corpus_paths(const std::vector<std::string>& patterns) {
  std::vector<Path> paths;
  std::set<Path> seen;
  for (const std::string& pattern : patterns) {
    if (pattern == "-" && !file_exists(pattern))
      throw ConfigError("[-] standard input is not taken here; write it into a file and give that");
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
      std::error_code error;
      throw ConfigError("[{}] finds no file{}; check the path (it is relative to {})", pattern,
                        std::filesystem::is_directory(pattern, error)
                            ? " (hidden ones and links that lead out of the folder do not count)"
                            : "",
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
