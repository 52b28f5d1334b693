// Tokenizer speed on one text file, one JSON line per measurement; bench/peers/tokenizer_peer.py runs it and
// Hugging Face tokenizers, and prints the ratios.
//
//   tokenizer_bench train FILE VOCABULARY OUTPUT THREADS
//   tokenizer_bench encode FILE TOKENIZER THREADS       lines in batches; cold: all caches empty
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/parallel.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/train_bpe.h"

namespace {

using namespace strata;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Documents of whole lines, of about this many bytes.
std::vector<std::string_view> documents(std::string_view text) {
  constexpr size_t kDocument = 4096;
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t newline = text.find('\n', std::min(text.size() - 1, kDocument));
    const size_t size = newline == text.npos ? text.size() : newline + 1;
    out.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return out;
}

void train(const MappedFile& file, int64_t vocabulary, const Path& output) {
  const auto start = Clock::now();
  bool given = false;
  const auto trained = data::train_bpe(
      [&](std::string_view& text) {
        text = file.text();
        return !std::exchange(given, true);
      },
      {.vocab_size = vocabulary});
  const double seconds = seconds_since(start);
  write_file_atomically(posix_file_system(), output, trained.json);
  fmt::print("{{\"seconds\": {}, \"vocabulary\": {}, \"mb_per_s\": {}}}\n", seconds, trained.vocab_size,
             static_cast<double>(file.size()) / 1e6 / seconds);
}

void encode(const MappedFile& file, const Path& path) {
  const auto tokenizer = data::Tokenizer::load(path);
  const auto texts = documents(file.text());
  std::vector<std::vector<int32_t>> ids(texts.size());
  for (const char* state : {"cold", "warm"}) {
    const auto start = Clock::now();
    parallel_ranges(static_cast<int64_t>(texts.size()), 16, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        ids[i].clear();
        tokenizer.encode(texts[i], ids[i]);
      }
    });
    const double seconds = seconds_since(start);
    size_t tokens = 0;
    for (const auto& document : ids) tokens += document.size();
    fmt::print("{{\"state\": \"{}\", \"seconds\": {}, \"tokens\": {}, \"mb_per_s\": {}}}\n", state, seconds,
               tokens, static_cast<double>(file.size()) / 1e6 / seconds);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 5 && arguments[0] == "train") {
      set_compute_threads(std::atoi(arguments[4].c_str()));
      train(MappedFile(arguments[1]), std::atoll(arguments[2].c_str()), arguments[3]);
    } else if (arguments.size() == 4 && arguments[0] == "encode") {
      set_compute_threads(std::atoi(arguments[3].c_str()));
      encode(MappedFile(arguments[1]), arguments[2]);
    } else {
      throw ConfigError(
          "usage: tokenizer_bench train FILE VOCABULARY OUTPUT THREADS | encode FILE TOKENIZER THREADS");
    }
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return exit_code(error.kind());
  }
  return 0;
}
