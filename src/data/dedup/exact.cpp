#include "data/dedup/exact.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "data/dedup/external_sort.h"
#include "data/dedup/record_file.h"

namespace strata::data::dedup {
namespace {

constexpr size_t kBlockDocuments = 4096;

struct Digest {
  uint64_t high, low;  // both 0: not compared
  bool operator==(const Digest&) const = default;
};

struct Entry {
  Digest digest;
  uint64_t document;
  bool operator<(const Entry& other) const {
    if (digest.high != other.digest.high) return digest.high < other.digest.high;
    if (digest.low != other.digest.low) return digest.low < other.digest.low;
    return document < other.document;
  }
  uint64_t leading() const { return digest.high; }
};

class Collector final : public PartCollector {
 public:
  Collector(CompareText compare, uint64_t tag, FileSystem& files, const Path& record)
      : compare_(compare), writer_(files, record, tag) {}

  void add(TextView& text, const Document&, StageStats& stats) override {
    const std::string_view bytes = compare_ == CompareText::kRaw ? text.bytes() : text.simplified();
    if (bytes.empty()) {
      stats.count("not_compared");
      digests_.push_back({0, 0});
    } else {
      const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
      digests_.push_back({hash.high64, hash.low64});
    }
    if (digests_.size() == kBlockDocuments) end_block();
  }
  void finish() override {
    end_block();
    writer_.finish();
  }

 private:
  void end_block() {
    if (digests_.empty()) return;
    writer_.column(std::span<const Digest>(digests_));
    writer_.end_block(digests_.size());
    digests_.clear();
  }

  CompareText compare_;
  std::vector<Digest> digests_;
  RecordWriter writer_;
};

class ExactStage final : public CorpusStage {
 public:
  explicit ExactStage(CompareText compare)
      : compare_(compare),
        tag_(record_tag(compare == CompareText::kRaw ? "exact raw" : "exact simplified")) {}

  std::unique_ptr<PartCollector> collect(FileSystem& files, const Path& record) const override {
    return std::make_unique<Collector>(compare_, tag_, files, record);
  }

  void decide(const DecideContext& context, StageStats& stats,
              FunctionRef<void(uint32_t, std::span<const Decision>)> sink) const override {
    const Records records(context, tag_);
    const Scratch scratch{context.files, context.scratch, context.memory_limit / 3};
    ScratchArray<uint64_t> back(scratch, "originals",
                                records.documents());  // how far back the first equal one is
    ExternalSorter<Entry> sorter({scratch.files, scratch.folder, 2 * scratch.memory}, "digests");
    records.for_each_block([&](const RecordFile::Block& block, BlockCursor cursor, uint64_t first) {
      for (const Digest& digest : cursor.column<Digest>(block.documents)) {
        if (digest != Digest{0, 0}) sorter.add({digest, first});
        ++first;
      }
    });
    Entry original{{0, 0}, 0};
    int64_t originals = 0;
    uint64_t last_original = ~uint64_t{0};
    sorter.drain([&](const Entry& entry) {
      if (entry.digest != original.digest) {
        original = entry;
        return;
      }
      back[entry.document] = entry.document - original.document;
      originals += original.document != last_original;
      last_original = original.document;
    });
    stats.count("documents_with_copies", originals);

    std::vector<Decision> decisions;
    for (uint32_t part = 0; part < records.parts(); ++part) {
      decisions.clear();
      const uint64_t begin = records.first_of(part), end = records.first_of(part + 1);
      for (uint64_t document = begin; document < end; ++document) {
        if (back[document] == 0) continue;
        decisions.push_back({.document = static_cast<uint32_t>(document - begin),
                             .drop = true,
                             .reason = "exact_duplicate",
                             .has_original = true,
                             .original = records.number(document - back[document])});
      }
      sink(part, decisions);
    }
  }

 private:
  CompareText compare_;
  uint64_t tag_;
};

}  // namespace

std::unique_ptr<CorpusStage> make_exact_stage(CompareText compare) {
  return std::make_unique<ExactStage>(compare);
}

}  // namespace strata::data::dedup
