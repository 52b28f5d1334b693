// Speed of the record readers: MB/s of stored bytes and of output bytes, one thread.
//   data_input_bench FILE…        (any format that strata data reads; each is read once before timing)
//   data_input_bench              (a synthetic jsonl file of 100 MB)
#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/input/record_reader.h"

namespace {

using namespace strata;
using namespace strata::data;

struct Totals {
  int64_t documents = 0, unread = 0, text = 0, stored = 0;
  double seconds = 0;
};

Totals read_file_once(const Path& path) {
  Totals totals;
  const auto begin = std::chrono::steady_clock::now();
  const auto reader = open_records(path, path.filename().string(), {});
  Document document;
  std::string detail;
  for (;;) {
    const ReadStatus status = reader->next(document, detail);
    if (status == ReadStatus::kEnd) break;
    if (status == ReadStatus::kDocument) {
      ++totals.documents;
      totals.text += static_cast<int64_t>(document.text.size());
    } else {
      ++totals.unread;
    }
  }
  totals.stored = reader->bytes_read();
  totals.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return totals;
}

Path make_jsonl(const Path& folder) {
  Path path = folder / "made.jsonl";
  std::ofstream out(path, std::ios::binary);
  for (int64_t i = 0, bytes = 0; bytes < 100'000'000; ++i) {
    std::string line = fmt::format(R"({{"id":"doc-{}","url":"https://example.org/{}","text":")", i, i);
    for (int64_t word = 0, words = 100 + i * 7919 % 1500; word < words; ++word) {
      line += fmt::format("word{}{}", (i + word * 31) % 1000, word % 12 == 11 ? ".\\n" : " ");
      if (word % 40 == 39) line += "\\\"quoted\\\" ";
    }
    line += "\"}\n";
    out << line;
    bytes += static_cast<int64_t>(line.size());
  }
  return path;
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<Path> paths(arguments + 1, arguments + count);
  const Path scratch =
      std::filesystem::temp_directory_path() / fmt::format("strata-input-bench-{}", std::rand());
  if (paths.empty()) {
    std::filesystem::create_directories(scratch);
    paths.push_back(make_jsonl(scratch));
  }
  fmt::print("{:<32} {:>10} {:>8} {:>12} {:>12}\n", "file", "documents", "unread", "stored MB/s",
             "text MB/s");
  int result = 0;
  for (const Path& path : paths) {
    try {
      read_file_once(path);
      const Totals totals = read_file_once(path);
      fmt::print("{:<32} {:>10} {:>8} {:>12.1f} {:>12.1f}\n", path.filename().string(), totals.documents,
                 totals.unread, 1e-6 * static_cast<double>(totals.stored) / totals.seconds,
                 1e-6 * static_cast<double>(totals.text) / totals.seconds);
    } catch (const Error& error) {
      fmt::print(stderr, "{}\n", error.what());
      result = exit_code(error.kind());
    }
  }
  std::filesystem::remove_all(scratch);
  return result;
}
