// Tokens per second of one thread that prepares samples (SampleSource::fill) and of the loader, and the time
// to find a tokenized corpus in its cache.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "data/samples/loader.h"
#include "data/tokens/tokenize.h"

namespace strata::data {
namespace {

constexpr int64_t kTokens = int64_t{1} << 25;
constexpr int64_t kLength = 1024;
constexpr int64_t kRows = 16;

// A corpus of u16 ids with an end-of-text id (0) about every 500 tokens, in a folder that is removed at the
// end.
class BenchFolder {
 public:
  BenchFolder() {
    path_ = std::filesystem::temp_directory_path() / ("strata-loader-bench-" + std::to_string(::getpid()));
    std::filesystem::create_directories(path_);
    std::vector<uint16_t> ids(kTokens);
    for (size_t i = 0; i < ids.size(); i += 4) {
      const auto bits = philox({1, 2}, i);
      for (size_t j = 0; j < 4; ++j) {
        ids[i + j] = bits[j] % 500 == 0 ? 0 : static_cast<uint16_t>(1 + (bits[j] >> 16) % 30000);
      }
    }
    auto file = posix_file_system().open_for_writing(path_ / "tokens.bin");
    file->append(ids.data(), ids.size() * sizeof(uint16_t));
    file->close();
    file = posix_file_system().open_for_writing(path_ / "text.txt");
    file->append(std::string(1 << 20, 'x'));
    file->close();
  }
  ~BenchFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const Path& path() const { return path_; }

 private:
  Path path_;
};

const BenchFolder& folder() {
  static const BenchFolder instance;
  return instance;
}

// Each weight is a separate source with the same file.
SampleSource make_source(Pack pack, std::initializer_list<double> weights = {1}, double fim_rate = 0) {
  std::vector<SampleSourceSpec> specs;
  for (const double weight : weights) {
    specs.push_back({"bench" + std::to_string(specs.size()),
                     open_token_corpus({(folder().path() / "tokens.bin").string()},
                                       {.vocab_size = 32000, .end_of_text = 0}),
                     weight, 0});
  }
  SampleOptions options{.sequence_length = kLength, .seed = 1, .pack = pack};
  options.fim = {
      .rate = fim_rate, .prefix = 1, .middle = 2, .suffix = 3, .end_of_text = 0, .begin_of_text = {}};
  return SampleSource(specs, options);
}

void report(benchmark::State& state) {
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(state.iterations() * kRows * kLength),
                                                  benchmark::Counter::kIsRate);
}

void fill(benchmark::State& state, const SampleSource& source) {
  HostBatch batch;
  batch.resize(source.shape(), kRows);
  BatchScratch scratch;
  int64_t first = 0;
  for (auto _ : state) {
    source.fill(first, kRows, batch.view(), scratch);
    first += kRows;
  }
  report(state);
}

void next(benchmark::State& state) {
  const SampleSource source = make_source(Pack::kDocuments);
  Loader loader(source, {.max_sequences = kRows});
  int64_t first = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(loader.next(first, kRows)[Column::kTokens].data());
    first += kRows;
  }
  report(state);
}

void cached(benchmark::State& state) {
  TextEncoder encoder;
  encoder.encode = [](std::string_view text, std::vector<int32_t>& ids, SpecialCounts&) {
    ids.assign(text.begin(), text.end());
  };
  encoder.vocab_size = 256;
  encoder.end_of_text = 0;
  const std::vector<std::string> inputs{(folder().path() / "*.txt").string()};
  for (auto _ : state) {
    tokenize_corpus(posix_file_system(), inputs, encoder, {}, folder().path() / "cache");
  }
}

void fill_packed(benchmark::State& state, Pack pack) {
  fill(state, make_source(pack));
}

void fill_blended(benchmark::State& state, Pack pack, double fim_rate) {
  fill(state, make_source(pack, {0.5, 0.3, 0.2}, fim_rate));
}

// Counts the places of a row as tokens.
void fill_objective(benchmark::State& state, Objective objective) {
  SampleOptions options{.sequence_length = kLength, .seed = 1, .pack = Pack::kStream};
  options.objective.kind = objective;
  options.objective.special.assign(32000, 0);
  options.objective.sentinels.assign(100, 1);
  const TokenCorpus corpus =
      open_token_corpus({(folder().path() / "tokens.bin").string()}, {.vocab_size = 32000, .end_of_text = 0});
  fill(state, SampleSource({{"bench", corpus, 1, 0}}, options));
}

BENCHMARK_CAPTURE(fill_objective, masked, Objective::kMasked)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(fill_objective, spans, Objective::kSpanCorruption)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(fill_packed, stream, Pack::kStream)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(fill_packed, documents, Pack::kDocuments)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(fill_blended, stream, Pack::kStream, 0.0)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(fill_blended, documents, Pack::kDocuments, 0.0)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(fill_blended, best_fit, Pack::kBestFit, 0.0)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(fill_blended, fim_documents, Pack::kDocuments, 0.5)->Unit(benchmark::kMicrosecond);
BENCHMARK(next)->Unit(benchmark::kMicrosecond)->UseRealTime();
BENCHMARK(cached)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace strata::data
