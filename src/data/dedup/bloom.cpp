#include "data/dedup/bloom.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/hash.h"
#include "data/dedup/minhash_hash.h"
#include "data/dedup/record_file.h"
#include "data/dedup/scratch_array.h"
#include "data/text/short_hash.h"

namespace strata::data::dedup {
namespace {

constexpr size_t kBlockDocuments = 4096;
constexpr size_t kBlockHashes = size_t{1} << 16;

// Columns of a block: u32 hashes of every document, u64 hashes.
class Collector final : public PartCollector {
 public:
  Collector(const BloomOptions& options, uint64_t tag, FileSystem& files, const Path& record)
      : options_(options), writer_(files, record, tag) {}

  void add(TextView& text, const Document&, StageStats&) override {
    const size_t before = hashes_.size();
    if (options_.by_ngrams) {
      join_simplified_words(text, options_.words, words_);
      const auto n = static_cast<size_t>(options_.n_grams);
      for (size_t i = 0; i + n <= words_.size(); ++i) hashes_.push_back(hash64(words_.span(i, n)));
    } else {
      hashes_.push_back(hash64(text.bytes()));
    }
    counts_.push_back(static_cast<uint32_t>(hashes_.size() - before));
    if (counts_.size() == kBlockDocuments || hashes_.size() >= kBlockHashes) end_block();
  }
  void finish() override {
    end_block();
    writer_.finish();
  }

 private:
  void end_block() {
    if (counts_.empty()) return;
    writer_.column(std::span<const uint32_t>(counts_));
    writer_.column(std::span<const uint64_t>(hashes_));
    writer_.end_block(counts_.size());
    counts_.clear();
    hashes_.clear();
  }

  const BloomOptions& options_;
  JoinedWords words_;
  std::vector<uint32_t> counts_;
  std::vector<uint64_t> hashes_;
  RecordWriter writer_;
};

class Filter {
 public:
  Filter(const Scratch& scratch, const BloomSize& size)
      : size_(size), bits_(scratch, "bloom", (size.bits + 63) / 64) {}

  bool has(uint64_t hash) {
    bool all = true;
    for_each_bit(hash, [&](uint64_t& word, uint64_t bit) { return all = (word & bit) != 0; });
    return all;
  }
  void insert(uint64_t hash) {
    for_each_bit(hash, [](uint64_t& word, uint64_t bit) {
      word |= bit;
      return true;
    });
  }

 private:
  // Positions hash + i * step, scaled from 2^64 to the number of bits, while `use` returns true.
  template <typename Use>
  void for_each_bit(uint64_t hash, const Use& use) {
    const uint64_t step = mix_hash(hash ^ 0x9E3779B97F4A7C15u, 0xE7037ED1A0B428DBu) | 1;
    for (int i = 0; i < size_.probes; ++i, hash += step) {
      const auto position = static_cast<uint64_t>(static_cast<unsigned __int128>(hash) * size_.bits >> 64);
      if (!use(bits_[position / 64], uint64_t{1} << position % 64)) return;
    }
  }

  BloomSize size_;
  ScratchArray<uint64_t> bits_;
};

class BloomStage final : public CorpusStage {
 public:
  explicit BloomStage(const BloomOptions& options)
      : options_(options),
        tag_(record_tag(options.by_ngrams ? fmt::format("bloom ngrams {} {}", options.n_grams,
                                                        static_cast<int>(options.words))
                                          : "bloom documents")) {}

  std::unique_ptr<PartCollector> collect(FileSystem& files, const Path& record) const override {
    return std::make_unique<Collector>(options_, tag_, files, record);
  }

  void decide(const DecideContext& context, StageStats& stats,
              FunctionRef<void(uint32_t, std::span<const Decision>)> sink) const override {
    const Records records(context, tag_);
    uint64_t elements = 0;
    records.for_each_block([&](const RecordFile::Block& block, BlockCursor cursor, uint64_t) {
      for (const uint32_t count : cursor.column<uint32_t>(block.documents)) elements += count;
    });
    if (options_.expected > 0) elements = static_cast<uint64_t>(options_.expected);
    const BloomSize size = bloom_size(elements, options_.false_positive_rate);
    Filter filter({context.files, context.scratch, context.memory_limit}, size);
    stats.count("filter_bits", static_cast<int64_t>(size.bits));
    stats.count("filter_probes", size.probes);
    std::vector<Decision> decisions;
    std::vector<uint64_t> fresh;
    for (uint32_t part = 0; part < records.parts(); ++part) {
      decisions.clear();
      const RecordFile file = records.open(part);
      uint32_t document = 0;
      for (const RecordFile::Block& block : file.blocks()) {
        BlockCursor cursor = file.cursor(block);
        const auto counts = cursor.column<uint32_t>(block.documents);
        auto rest = cursor.column<uint64_t>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
        for (const uint32_t count : counts) {
          // The document's own n-grams are added afterwards: its internal repeats do not count as seen.
          fresh.clear();
          for (const uint64_t hash : rest.first(count)) {
            if (!filter.has(hash)) fresh.push_back(hash);
          }
          rest = rest.subspan(count);
          for (const uint64_t hash : fresh) filter.insert(hash);
          const double known = static_cast<double>(count - fresh.size());
          if (count > 0 && known / count > options_.duplicate_threshold) {
            decisions.push_back({.document = document, .drop = true, .reason = "bloom_duplicate"});
          }
          ++document;
        }
      }
      sink(part, decisions);
    }
  }

 private:
  BloomOptions options_;
  uint64_t tag_;
};

}  // namespace

BloomSize bloom_size(uint64_t elements, double false_positive_rate) {
  const double n = static_cast<double>(std::max<uint64_t>(elements, 1));
  const double bits = std::ceil(-n * std::log(false_positive_rate) / (std::numbers::ln2 * std::numbers::ln2));
  return {std::max<uint64_t>(64, static_cast<uint64_t>(bits)),
          std::max(1, static_cast<int>(std::lround(bits / n * std::numbers::ln2)))};
}

std::unique_ptr<CorpusStage> make_bloom_stage(const BloomOptions& options) {
  return std::make_unique<BloomStage>(options);
}

}  // namespace strata::data::dedup
