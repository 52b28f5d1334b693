// Speed of deduplication stages: MB/s of text while collecting, and seconds per million documents to decide.
// Texts come from a file (its paragraphs joined to documents of about 3 kB), or are synthetic.
//
//   data_dedup_bench [--text FILE] [--megabytes 64] [--threads 2] [--kind minhash] [--set NAME=VALUE]...
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/random.h"
#include "data/pipeline/stage_kinds.h"

namespace strata::data {
namespace {

struct Arguments {
  std::string text;
  int64_t megabytes = 64;
  int threads = 2;
  std::string kind;
  std::vector<std::string> set;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Words of a vocabulary whose frequent words are short; one document in five is a changed copy of an earlier
// one.
std::vector<std::string> made_up(int64_t bytes) {
  std::vector<std::string> texts;
  std::vector<std::string> vocabulary;
  for (uint64_t i = 0; i < 50000; ++i) {
    std::string word;
    const auto bits = philox({1, 1}, i);
    for (uint32_t k = 0; k < 2 + i % 9; ++k) word += static_cast<char>('a' + (bits[k % 4] >> k) % 26);
    vocabulary.push_back(word);
  }
  uint64_t counter = 0;
  for (int64_t done = 0; done < bytes; done += static_cast<int64_t>(texts.back().size())) {
    std::string text;
    const auto how = philox({1, 2}, texts.size());
    if (how[0] % 5 == 0 && !texts.empty()) {
      text = texts[how[1] % texts.size()];
      text.replace(how[2] % text.size(), 1, " another ");
    } else {
      for (uint32_t word = 200 + how[1] % 600; word > 0; --word) {
        const auto bits = philox({1, 3}, counter++);
        text += vocabulary[static_cast<size_t>(50000.0 * uniform_float(bits[0]) * uniform_float(bits[1]))];
        text += bits[2] % 12 == 0 ? ". " : bits[2] % 40 == 1 ? "\n" : " ";
      }
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<std::string> from_file(const std::string& path, int64_t bytes) {
  const std::string all = read_file(path);
  std::vector<std::string> texts;
  for (size_t at = 0; at < std::min<size_t>(all.size(), static_cast<size_t>(bytes));) {
    const size_t end = std::min(all.size(), all.find('\n', std::min(all.size(), at + 3000)));
    texts.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  return texts;
}

StageValue parsed(const StageValue& like, const std::string& value) {
  if (std::holds_alternative<int64_t>(like)) return int64_t{std::stoll(value)};
  if (std::holds_alternative<double>(like)) return std::stod(value);
  return value;
}

void measure(const StageKind& kind, const Arguments& arguments, const std::vector<std::string>& texts,
             int64_t bytes) {
  std::map<std::string, StageValue> values;
  for (const StageParameter& parameter : kind.parameters) values[parameter.name] = parameter.value;
  for (const std::string& set : arguments.set) {
    const std::string name = set.substr(0, set.find('='));
    if (values.contains(name)) values[name] = parsed(values[name], set.substr(set.find('=') + 1));
  }
  const auto stage = std::get<std::unique_ptr<CorpusStage>>(kind.make(StageParameters(values, ".")));
  const Path folder =
      std::filesystem::temp_directory_path() / ("strata-dedup-bench-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "scratch");
  FileSystem& files = posix_file_system();

  constexpr int64_t kPartDocuments = 4096;
  const auto parts = static_cast<int64_t>((texts.size() + kPartDocuments - 1) / kPartDocuments);
  std::vector<Path> records;
  for (int64_t part = 0; part < parts; ++part) records.push_back(folder / std::to_string(part));
  std::vector<StageStats> stats(static_cast<size_t>(parts), StageStats(stage->metrics()));
  double start = now();
  parallel_for(parts, [&](int64_t part) {
    TextView view;
    std::string text;
    const auto collector = stage->collect(files, records[static_cast<size_t>(part)]);
    const size_t end = std::min<size_t>(texts.size(), static_cast<size_t>((part + 1) * kPartDocuments));
    for (auto i = static_cast<size_t>(part * kPartDocuments); i < end; ++i) {
      text = texts[i];
      view.reset(text);
      collector->add(view, Document{}, stats[static_cast<size_t>(part)]);
    }
    collector->finish();
  });
  const double collected = now() - start;
  int64_t record_bytes = 0;
  for (const Path& record : records) record_bytes += static_cast<int64_t>(std::filesystem::file_size(record));

  start = now();
  int64_t decisions = 0;
  StageStats decided;
  stage->decide({records, folder / "scratch", int64_t{1} << 30, &files}, decided,
                [&](uint32_t, std::span<const Decision> d) { decisions += static_cast<int64_t>(d.size()); });
  const double seconds = now() - start;
  fmt::print(
      "{:16} collect {:7.1f} MB/s   decide {:6.2f} s per million documents, {:7.1f} MB/s   records {:6.0f} "
      "bytes "
      "a document   {} of {} documents decided on\n",
      kind.name, static_cast<double>(bytes) / 1e6 / collected,
      seconds * 1e6 / static_cast<double>(texts.size()), static_cast<double>(bytes) / 1e6 / seconds,
      static_cast<double>(record_bytes) / static_cast<double>(texts.size()), decisions, texts.size());
  std::filesystem::remove_all(folder);
}

int run(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--text") arguments.text = value;
    if (name == "--megabytes") arguments.megabytes = std::stoll(value);
    if (name == "--threads") arguments.threads = std::stoi(value);
    if (name == "--kind") arguments.kind = value;
    if (name == "--set") arguments.set.push_back(value);
  }
  set_compute_threads(arguments.threads);
  const int64_t wanted = arguments.megabytes * 1000000;
  const auto texts = arguments.text.empty() ? made_up(wanted) : from_file(arguments.text, wanted);
  int64_t bytes = 0;
  for (const std::string& text : texts) bytes += static_cast<int64_t>(text.size());
  fmt::print("{} documents, {:.1f} MB, {} threads\n", texts.size(), static_cast<double>(bytes) / 1e6,
             arguments.threads);
  for (const StageKind& kind : dedup_stage_kinds()) {
    if (arguments.kind.empty() || arguments.kind == kind.name) measure(kind, arguments, texts, bytes);
  }
  return 0;
}

}  // namespace
}  // namespace strata::data

int main(int argc, char** argv) {
  try {
    return strata::data::run(argc, argv);
  } catch (const strata::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return strata::exit_code(error.kind());
  }
}
