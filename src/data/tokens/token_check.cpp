#include "data/tokens/token_check.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <set>
#include <vector>

#include "base/json.h"
#include "base/parallel.h"

namespace strata::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kTaskTokens = int64_t{1} << 20;
constexpr int64_t kTasksAtOnce = 128;

// Whether the type can hold an id that the vocabulary does not.
bool can_be_too_large(const TokenFile& file) {
  switch (file.type()) {
    case TokenType::kU8:
      return file.vocab_limit() < 256;
    case TokenType::kU16:
      return file.vocab_limit() < 65536;
    default:
      return true;
  }
}

// The facts that identify the file that was read.
Json facts_of(const TokenFile& file) {
  const Path path = file.name();
  return {{"bytes", std::filesystem::file_size(path)},
          {"modified", std::filesystem::last_write_time(path).time_since_epoch().count()},
          {"dtype", token_type_name(file.type())},
          {"vocabulary", file.vocab_limit()}};
}

Json read_record(const Path& record) {
  if (!std::filesystem::exists(record)) return Json::object();
  Json json = parse_json_or_discard<Json>(read_file(record));
  return json.is_object() ? json : Json::object();  // not our JSON: read the files again
}

void check_tokens(const TokenFile& file, int64_t begin, int64_t end) {
  constexpr int64_t kAtOnce = 1 << 14;
  std::vector<int32_t> ids(kAtOnce);
  for (int64_t at = begin; at < end; at += kAtOnce) file.read(at, std::min(kAtOnce, end - at), ids.data());
}

void check_file(const TokenFile& file, FunctionRef<void()> check) {
  const int64_t tasks = (file.tokens() + kTaskTokens - 1) / kTaskTokens;
  for (int64_t first = 0; first < tasks; first += kTasksAtOnce) {
    if (first > 0) check();
    const int64_t count = std::min(kTasksAtOnce, tasks - first);
    std::vector<std::exception_ptr> errors(static_cast<size_t>(count));
    parallel_for(count, [&](int64_t i) {
      const int64_t begin = (first + i) * kTaskTokens;
      try {
        check_tokens(file, begin, std::min(file.tokens(), begin + kTaskTokens));
      } catch (...) {
        errors[static_cast<size_t>(i)] = std::current_exception();
      }
    });
    // The first in the file, regardless of which thread was first.
    for (const auto& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }
}

}  // namespace

int64_t check_token_ids(FileSystem& files, const TokenCorpus& corpus, const Path& record,
                        FunctionRef<void()> check) {
  Json known = read_record(record);
  int64_t tokens = 0;
  std::set<std::string> seen;
  for (const TokenSegment& segment : corpus.segments()) {
    const TokenFile& file = *segment.file;
    if (!seen.insert(file.name()).second || !can_be_too_large(file)) continue;
    const std::string name = std::filesystem::absolute(file.name()).lexically_normal().string();
    const Json facts = facts_of(file);
    if (known.contains(name) && known[name] == facts) continue;
    check_file(file, check);
    tokens += file.tokens();
    known[name] = facts;
  }
  if (tokens > 0) {
    files.create_directories(record.parent_path());
    write_file_atomically(files, record, dump_json(known, 2, InvalidUtf8::kReplace) + "\n");
  }
  return tokens;
}

}  // namespace strata::data
