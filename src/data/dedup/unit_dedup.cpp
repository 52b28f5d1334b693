#include "data/dedup/unit_dedup.h"

#include <fmt/core.h>

#include "base/hash.h"
#include "data/dedup/decisions.h"
#include "data/dedup/external_sort.h"
#include "data/dedup/record_file.h"
#include "data/text/characters.h"

namespace strata::data::dedup {
namespace {

constexpr size_t kBlockDocuments = 4096;
constexpr size_t kBlockUnits = size_t{1} << 16;

struct Entry {
  uint64_t hash, unit;
  bool operator<(const Entry& other) const {
    return hash != other.hash ? hash < other.hash : unit < other.unit;
  }
  uint64_t leading() const { return hash; }
};

// The columns of a block: u32 units of every document; of every unit u64 hash (0: not compared), its extent,
// u32 words.
struct Columns {
  std::vector<uint32_t> counts;
  std::vector<uint64_t> hashes;
  std::vector<TextSpan> extents;
  std::vector<uint32_t> text_ends;
  std::vector<uint32_t> words;
};

struct BlockView {
  std::span<const uint32_t> counts;
  std::span<const uint64_t> hashes;
  std::span<const TextSpan> extents;
  std::span<const uint32_t> text_ends;
  std::span<const uint32_t> words;

  BlockView(const RecordFile::Block& block, BlockCursor cursor)
      : counts(cursor.column<uint32_t>(block.documents)) {
    uint64_t units = 0;
    for (const uint32_t count : counts) units += count;
    hashes = cursor.column<uint64_t>(units);
    extents = cursor.column<TextSpan>(units);
    text_ends = cursor.column<uint32_t>(units);
    words = cursor.column<uint32_t>(units);
  }
};

class Collector final : public PartCollector {
 public:
  Collector(const UnitOptions& options, uint64_t tag, FileSystem& files, const Path& record)
      : options_(options), writer_(files, record, tag) {}

  void add(TextView& text, const Document&, StageStats&) override {
    split_units(text.bytes(), options_.kind, units_);
    const auto words = text.words(WordRule::kWhitespace);
    size_t word = 0;
    for (const Unit& unit : units_) {
      const size_t first = word;
      const char* end = unit.text.data() + unit.text.size();
      while (word < words.size() && words[word].bytes.data() < end) ++word;
      columns_.words.push_back(static_cast<uint32_t>(word - first));
      columns_.extents.push_back(unit.extent);
      columns_.text_ends.push_back(static_cast<uint32_t>(end - text.bytes().data()));
      const bool compared = static_cast<int64_t>(word - first) >= options_.min_unit_words;
      columns_.hashes.push_back(compared ? hash_of(unit.text) : 0);
    }
    columns_.counts.push_back(static_cast<uint32_t>(units_.size()));
    if (columns_.counts.size() == kBlockDocuments || columns_.hashes.size() >= kBlockUnits) end_block();
  }

  void finish() override {
    end_block();
    writer_.finish();
  }

 private:
  uint64_t hash_of(std::string_view unit) {
    changed_.clear();
    if (options_.compare == CompareUnit::kLower) {
      lower(strip(unit), changed_);
    } else {
      simplify(unit, changed_);
      if (changed_.empty()) return 0;
    }
    return std::max<uint64_t>(1, hash64(changed_));
  }

  template <typename T>
  void put(std::vector<T>& column) {
    writer_.column(std::span<const T>(column));
    column.clear();
  }

  void end_block() {
    const size_t documents = columns_.counts.size();
    if (documents == 0) return;
    put(columns_.counts);
    put(columns_.hashes);
    put(columns_.extents);
    put(columns_.text_ends);
    put(columns_.words);
    writer_.end_block(documents);
  }

  const UnitOptions& options_;
  std::vector<Unit> units_;
  std::string changed_;
  Columns columns_;
  RecordWriter writer_;
};

class UnitStage final : public CorpusStage {
 public:
  explicit UnitStage(const UnitOptions& options)
      : options_(options),
        tag_(record_tag(fmt::format("units {} {} {}", static_cast<int>(options.kind),
                                    static_cast<int>(options.compare), options.min_unit_words))) {}

  std::unique_ptr<PartCollector> collect(FileSystem& files, const Path& record) const override {
    return std::make_unique<Collector>(options_, tag_, files, record);
  }

  void decide(const DecideContext& context, StageStats& stats,
              FunctionRef<void(uint32_t, std::span<const Decision>)> sink) const override {
    const Records records(context, tag_);
    const Scratch scratch{context.files, context.scratch, context.memory_limit / 3};
    uint64_t units = 0;
    records.for_each_block([&](const RecordFile::Block& block, BlockCursor cursor, uint64_t) {
      units += BlockView(block, cursor).hashes.size();
    });
    ScratchArray<uint64_t> again(scratch, "again", units / 64 + 1);  // a bit a unit: it occurred before
    {
      ExternalSorter<Entry> sorter({scratch.files, scratch.folder, 2 * scratch.memory}, "units");
      uint64_t unit = 0;
      records.for_each_block([&](const RecordFile::Block& block, BlockCursor cursor, uint64_t) {
        for (const uint64_t hash : BlockView(block, cursor).hashes) {
          if (hash != 0) sorter.add({hash, unit});
          ++unit;
        }
      });
      uint64_t last = 0;
      sorter.drain([&](const Entry& entry) {
        if (entry.hash == last) again[entry.unit / 64] |= uint64_t{1} << entry.unit % 64;
        last = entry.hash;
      });
    }
    uint64_t unit = 0;
    std::vector<Decision> decisions;
    for (uint32_t part = 0; part < records.parts(); ++part) {
      decisions.clear();
      const RecordFile file = records.open(part);
      uint32_t document = 0;
      for (const RecordFile::Block& block : file.blocks()) {
        const BlockView view(block, file.cursor(block));
        size_t at = 0;
        for (const uint32_t count : view.counts) {
          decide_document(view, at, count, unit, again, document++, decisions, stats);
          at += count;
          unit += count;
        }
      }
      sink(part, decisions);
    }
  }

 private:
  void decide_document(const BlockView& view, size_t at, size_t count, uint64_t unit,
                       ScratchArray<uint64_t>& again, uint32_t document, std::vector<Decision>& decisions,
                       StageStats& stats) const {
    Decision decision;
    decision.document = document;
    int64_t words = 0, kept = 0;
    size_t last_kept = count;
    for (size_t i = 0; i < count; ++i) {
      if (again[(unit + i) / 64] >> (unit + i) % 64 & 1) {
        add_span(decision.cut, view.extents[at + i]);
      } else {
        words += view.words[at + i];
        ++kept;
        last_kept = i;
      }
    }
    if (decision.cut.empty()) return;
    const size_t last = at + count - 1;
    if (kept > 0 && last_kept + 1 < count && view.text_ends[last] == view.extents[last].end) {
      // The text's end has no separator after it, so the separator before the last cut is removed.
      TextSpan span = decision.cut.back();
      span.begin = options_.kind == UnitKind::kLine ? span.begin - 1 : view.text_ends[at + last_kept];
      decision.cut.pop_back();
      add_span(decision.cut, span);
    }
    const bool lines = options_.kind == UnitKind::kLine;
    stats.count(lines ? "lines_removed" : "paragraphs_removed", static_cast<int64_t>(count) - kept);
    stats.count("documents_changed");
    stats.count("bytes_removed", bytes_of(decision.cut));
    if (words == 0) {
      decision.reason = "no_text_left";
    } else if (words < options_.min_doc_words) {
      decision.reason = "too_few_words";
    } else if (kept < options_.min_doc_units) {
      decision.reason = lines ? "too_few_lines" : "too_few_paragraphs";
    }
    decision.drop = !decision.reason.empty();
    if (decision.drop) decision.cut.clear();
    decisions.push_back(std::move(decision));
  }

  UnitOptions options_;
  uint64_t tag_;
};

}  // namespace

void split_units(std::string_view text, UnitKind kind, std::vector<Unit>& units) {
  units.clear();
  const auto position = [&](const char* at) { return static_cast<uint32_t>(at - text.data()); };
  size_t begin = 0;
  bool open = false;  // a paragraph that may go on
  while (begin < text.size()) {
    const size_t found = text.find('\n', begin);
    const size_t end = found == std::string_view::npos ? text.size() : found;
    const size_t next = std::min(text.size(), end + 1);
    const std::string_view line = text.substr(begin, end - begin);
    const bool blank = strip(line).empty();
    if (!blank && kind == UnitKind::kParagraph && open) {
      Unit& last = units.back();
      last.text = {last.text.data(), static_cast<size_t>(line.data() + line.size() - last.text.data())};
      last.extent.end = position(line.data() + line.size());
    } else if (!blank) {
      const uint32_t at = static_cast<uint32_t>(begin);
      if (kind == UnitKind::kParagraph && !units.empty()) units.back().extent.end = at;
      units.push_back({line, {at, static_cast<uint32_t>(kind == UnitKind::kLine ? next : end)}});
    }
    open = !blank;
    begin = next;
  }
}

std::unique_ptr<CorpusStage> make_unit_stage(const UnitOptions& options) {
  return std::make_unique<UnitStage>(options);
}

}  // namespace strata::data::dedup
