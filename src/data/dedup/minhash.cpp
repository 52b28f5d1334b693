#include "data/dedup/minhash.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "data/dedup/minhash_decide.h"
#include "data/dedup/record_file.h"

namespace strata::data::dedup {
namespace {

constexpr size_t kBlockDocuments = 4096;
constexpr size_t kBlockShingles = size_t{1} << 18;

// Columns of a block: u32 words, u64 keys bucket by bucket, and with min_jaccard u64 keys of the whole sets,
// u64 ends of the sets among the block's hashes, u64 hashes of each set in rising order.
class Collector final : public PartCollector {
 public:
  Collector(const MinhashSignature& signature, bool keep_shingles, uint64_t tag, FileSystem& files,
            const Path& record)
      : signature_(signature),
        keep_shingles_(keep_shingles),
        keys_(static_cast<size_t>(signature.options().buckets)),
        writer_(files, record, tag) {}

  void add(TextView& text, const Document&, StageStats& stats) override {
    join_simplified_words(text, signature_.options().words, words_);
    signature_.shingles(words_, hashes_);
    if (hashes_.empty()) {
      stats.count("documents_too_short");
      number_.push_back(0);
      for (auto& keys : keys_) keys.push_back(0);
    } else {
      signature_.signature(hashes_, least_);
      number_.push_back(static_cast<uint32_t>(words_.size()));
      for (size_t bucket = 0; bucket < keys_.size(); ++bucket) {
        keys_[bucket].push_back(signature_.bucket_key(least_, static_cast<int64_t>(bucket)));
      }
    }
    if (keep_shingles_) {
      std::sort(hashes_.begin(), hashes_.end());
      hashes_.erase(std::unique(hashes_.begin(), hashes_.end()), hashes_.end());
      set_keys_.push_back(hash64(hashes_.data(), hashes_.size() * sizeof(uint64_t)));
      shingles_.insert(shingles_.end(), hashes_.begin(), hashes_.end());
      set_ends_.push_back(shingles_.size());
    }
    if (number_.size() == kBlockDocuments || shingles_.size() >= kBlockShingles) end_block();
  }

  void finish() override {
    end_block();
    writer_.finish();
  }

 private:
  template <typename T>
  void put(std::vector<T>& column) {
    writer_.column(std::span<const T>(column));
    column.clear();
  }

  void end_block() {
    const size_t documents = number_.size();
    if (documents == 0) return;
    put(number_);
    for (auto& keys : keys_) put(keys);
    if (keep_shingles_) {
      put(set_keys_);
      put(set_ends_);
      put(shingles_);
    }
    writer_.end_block(documents);
  }

  const MinhashSignature& signature_;
  bool keep_shingles_;
  JoinedWords words_;
  std::vector<uint64_t> hashes_, least_;
  std::vector<uint32_t> number_;
  std::vector<std::vector<uint64_t>> keys_;
  std::vector<uint64_t> set_keys_;
  std::vector<uint64_t> set_ends_;
  std::vector<uint64_t> shingles_;
  RecordWriter writer_;
};

uint64_t tag_of(const MinhashStageOptions& options) {
  const MinhashOptions& o = options.signature;
  return record_tag(fmt::format("minhash {} {} {} {} {} {} {} {}", o.n_grams, o.buckets, o.hashes_per_bucket,
                                o.seed, static_cast<int>(o.hash), o.narrow, static_cast<int>(o.words),
                                options.min_jaccard > 0));
}

class MinhashStage final : public CorpusStage {
 public:
  explicit MinhashStage(const MinhashStageOptions& options)
      : options_(options), signature_(options.signature), tag_(tag_of(options)) {}

  std::unique_ptr<PartCollector> collect(FileSystem& files, const Path& record) const override {
    return std::make_unique<Collector>(signature_, options_.min_jaccard > 0, tag_, files, record);
  }
  void decide(const DecideContext& context, StageStats& stats,
              FunctionRef<void(uint32_t, std::span<const Decision>)> sink) const override {
    decide_near_duplicates(context, tag_, options_, stats, sink);
  }

 private:
  MinhashStageOptions options_;
  MinhashSignature signature_;
  uint64_t tag_;
};

}  // namespace

std::unique_ptr<CorpusStage> make_minhash_stage(const MinhashStageOptions& options) {
  return std::make_unique<MinhashStage>(options);
}

}  // namespace strata::data::dedup
