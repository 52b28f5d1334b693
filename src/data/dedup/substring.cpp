#include "data/dedup/substring.h"

#include <fmt/core.h>

#include "base/hash.h"
#include "data/dedup/decisions.h"
#include "data/dedup/external_sort.h"
#include "data/dedup/substring_index.h"
#include "data/text/characters.h"

namespace strata::data::dedup {
namespace {

constexpr size_t kBlockDocuments = 4096;
constexpr size_t kBlockBytes = size_t{1} << 20;

// A run of windows with one anchor.
struct Member {
  uint64_t hash, document;
  uint32_t begin;
  uint16_t count, offset;
  bool operator<(const Member& other) const {
    if (hash != other.hash) return hash < other.hash;
    return document != other.document ? document < other.document : begin < other.begin;
  }
  uint64_t leading() const { return hash; }
};

// One window. Its hash is of its bytes, its group of those with the same anchor.
struct Window {
  uint64_t hash, document;
  uint64_t begin;
  bool operator<(const Window& other) const {
    if (hash != other.hash) return hash < other.hash;
    return document != other.document ? document < other.document : begin < other.begin;
  }
  uint64_t leading() const { return hash; }
};

struct Cut {
  uint64_t document;
  TextSpan span;
  bool operator<(const Cut& other) const {
    if (document != other.document) return document < other.document;
    return span.begin != other.span.begin ? span.begin < other.span.begin : span.end < other.span.end;
  }
};

class Collector final : public PartCollector {
 public:
  Collector(size_t window, uint64_t tag, FileSystem& files, const Path& record)
      : anchors_(window), writer_(files, record, tag) {}

  void add(TextView& text, const Document&, StageStats&) override {
    anchors_.find(text.bytes(), runs_);
    texts_ += text.bytes();
    text_ends_.push_back(texts_.size());
    run_ends_.push_back(runs_.size());
    if (texts_.size() >= kBlockBytes || text_ends_.size() == kBlockDocuments) end_block();
  }
  void finish() override {
    end_block();
    writer_.finish();
  }

 private:
  void end_block() {
    const size_t documents = text_ends_.size();
    if (documents == 0) return;
    writer_.column(std::span<const uint64_t>(text_ends_));
    writer_.column(std::span<const uint64_t>(run_ends_));
    writer_.column(texts_.data(), texts_.size());
    writer_.column(std::span<const AnchorRun>(runs_));
    writer_.end_block(documents);
    text_ends_.clear();
    run_ends_.clear();
    texts_.clear();
    runs_.clear();
  }

  AnchorFinder anchors_;
  std::vector<uint64_t> text_ends_, run_ends_;
  std::string texts_;
  std::vector<AnchorRun> runs_;
  RecordWriter writer_;
};

class Decider {
 public:
  Decider(const DecideContext& context, uint64_t tag, size_t window)
      : window_(window),
        scratch_{context.files, context.scratch, context.memory_limit / 4},
        records_(context, tag),
        texts_(records_),
        members_(scratch_, "anchors"),
        windows_(scratch_, "windows"),
        cuts_(scratch_, "cuts"),
        most_members_(std::max<size_t>(2, static_cast<size_t>(scratch_.memory) / 64)) {}

  void find() {
    records_.for_each_block([&](const RecordFile::Block& block, BlockCursor cursor, uint64_t first) {
      const SubstringBlock view(block, cursor);
      for (size_t row = 0; row < block.documents; ++row) {
        for (const AnchorRun& run : view.runs_of(row)) {
          if (run.begin + run.count - 1 + window_ > view.text(row).size() || run.offset >= window_) {
            cursor.fail("an anchor is outside its text");
          }
          members_.add({run.hash, first + row, run.begin, run.count, run.offset});
        }
      }
    });
    members_.drain([&](const Member& member) {
      if (member.hash != group_hash_) end_group();
      group_hash_ = member.hash;
      group_.push_back(member);
      if (group_.size() >= most_members_) spill_group();
    });
    end_group();
    windows_.drain([&](const Window& window) { compare_with_first(window); });
  }

  void report(StageStats& stats, FunctionRef<void(uint32_t, std::span<const Decision>)> sink) {
    std::vector<Decision> decisions;
    uint32_t part = 0;
    Decision decision;
    uint64_t document = 0;
    std::vector<TextSpan> found;
    const auto end_document = [&] {
      if (found.empty()) return;
      while (document >= records_.first_of(part + 1)) {
        sink(part++, decisions);
        decisions.clear();
      }
      decide(document, found, static_cast<uint32_t>(document - records_.first_of(part)), decisions, stats);
      found.clear();
    };
    cuts_.drain([&](const Cut& cut) {
      if (cut.document != document) end_document();
      document = cut.document;
      add_span(found, cut.span);
    });
    end_document();
    for (; part < records_.parts(); ++part) {
      sink(part, decisions);
      decisions.clear();
    }
  }

 private:
  std::string_view bytes_of_window(uint64_t document, uint64_t begin) const {
    return texts_.text(document).substr(begin, window_);
  }

  // Whether a window goes in favour of the first one that has its hash. Windows whose hashes agree by chance
  // stay.
  bool repeats(const Window& first, const Window& window) const {
    return (first.document != window.document || first.begin + window_ <= window.begin) &&
           bytes_of_window(first.document, first.begin) == bytes_of_window(window.document, window.begin);
  }

  void add_cut(uint64_t document, uint64_t begin, uint64_t windows) {
    cuts_.add(
        {document, {static_cast<uint32_t>(begin), static_cast<uint32_t>(begin + windows - 1 + window_)}});
  }

  void end_group() {
    if (spilled_) {
      spill_group();
    } else if (group_.size() > 1) {
      compare_group();
    }
    group_.clear();
    spilled_ = false;
  }

  // The windows of a group that does not fit in memory are sorted individually, with those of other such
  // groups.
  void spill_group() {
    for (const Member& member : group_) {
      const std::string_view text = texts_.text(member.document);
      for (uint64_t begin = member.begin; begin < uint64_t{member.begin} + member.count; ++begin) {
        windows_.add({hash64(text.substr(begin, window_)), member.document, begin});
      }
    }
    group_.clear();
    spilled_ = true;
  }
  void compare_with_first(const Window& window) {
    if (window.hash != first_.hash) {
      first_ = window;
    } else if (repeats(first_, window)) {
      add_cut(window.document, window.begin, 1);
    }
  }

  // For groups of few members: the length of the match around the anchors of two texts decides all windows
  // together.
  void compare_few() {
    for (size_t j = 1; j < group_.size(); ++j) {
      const Member& later = group_[j];
      const std::string_view later_text = texts_.text(later.document);
      const size_t later_at = size_t{later.begin} + later.offset;
      marks_.assign(later.count, kNew);
      for (size_t i = 0; i < j; ++i) {
        const Member& earlier = group_[i];
        const std::string_view text = texts_.text(earlier.document);
        const size_t at = size_t{earlier.begin} + earlier.offset;
        size_t after = 0, before = 0;  // bytes that agree from the anchor on, and before it
        const size_t most_after = std::min({window_, text.size() - at, later_text.size() - later_at});
        while (after < most_after && text[at + after] == later_text[later_at + after]) ++after;
        const size_t most_before = std::min<size_t>(earlier.offset, later.offset);
        while (before < most_before && text[at - before - 1] == later_text[later_at - before - 1]) ++before;
        // Bytes of a window before its anchor: those that both members have, and that agree on both sides.
        const auto least_of = [](const Member& m) {
          return size_t{m.offset} + 1 - std::min<size_t>(m.count, m.offset + 1);
        };
        const size_t least = std::max({window_ - after, least_of(earlier), least_of(later)});
        const bool apart = earlier.document != later.document || at + window_ <= later_at;
        for (size_t offset = least; offset <= before; ++offset) {
          uint8_t& mark = marks_[later.offset - offset];
          if (mark == kNew) mark = apart ? kRepeated : kOverlaps;
        }
      }
      cut_marked(later, marks_.data());
    }
  }

  // Only windows that have the anchor at the same place can be equal.
  void compare_group() {
    if (group_.size() <= kFew) return compare_few();
    std::vector<std::string_view> texts;
    std::vector<size_t> first_mark;
    size_t marks = 0, offsets = 0;
    for (const Member& member : group_) {
      texts.push_back(texts_.text(member.document));
      first_mark.push_back(marks);
      marks += member.count;
      offsets = std::max<size_t>(offsets, member.offset + size_t{1});
    }
    marks_.assign(marks, kNew);
    for (size_t offset = 0; offset < offsets; ++offset) {
      same_place_.clear();
      for (size_t i = 0; i < group_.size(); ++i) {
        const Member& member = group_[i];
        if (offset > member.offset || member.offset - offset >= member.count) continue;
        const uint64_t begin = member.begin + (member.offset - offset);
        same_place_.push_back({{hash64(texts[i].substr(begin, window_)), member.document, begin}, i});
      }
      std::sort(same_place_.begin(), same_place_.end());
      const Window* first = nullptr;
      for (const Placed& placed : same_place_) {
        if (first == nullptr || first->hash != placed.window.hash) {
          first = &placed.window;
        } else if (repeats(*first, placed.window)) {
          marks_[first_mark[placed.member] + placed.window.begin - group_[placed.member].begin] = kRepeated;
        }
      }
    }
    for (size_t i = 0; i < group_.size(); ++i) cut_marked(group_[i], marks_.data() + first_mark[i]);
  }

  void cut_marked(const Member& member, const uint8_t* marks) {
    for (size_t j = 0; j < member.count;) {
      size_t end = j;
      while (end < member.count && marks[end] == kRepeated) ++end;
      if (end > j) add_cut(member.document, member.begin + j, end - j);
      j = end + 1;
    }
  }

  void decide(uint64_t document, const std::vector<TextSpan>& found, uint32_t row,
              std::vector<Decision>& decisions, StageStats& stats) const {
    const std::string_view text = texts_.text(document);
    Decision decision;
    decision.document = row;
    bool left = false;
    uint32_t kept = 0;
    for (const TextSpan& span : found) {
      const TextSpan cut = whole_words(text, span);
      if (cut.begin >= cut.end) continue;
      left |= !strip(text.substr(kept, cut.begin - kept)).empty();
      kept = cut.end;
      decision.cut.push_back(cut);
    }
    if (decision.cut.empty()) return;
    left |= !strip(text.substr(kept)).empty();
    stats.count("spans_removed", static_cast<int64_t>(decision.cut.size()));
    stats.count("bytes_removed", bytes_of(decision.cut));
    stats.count("documents_changed");
    if (!left) {
      decision.drop = true;
      decision.reason = "no_text_left";
      decision.cut.clear();
    }
    decisions.push_back(std::move(decision));
  }

  static constexpr size_t kFew = 8;  // members that are compared with each other
  // The state of a window: nothing like it came before, or its first occurrence did, apart from it or
  // overlapping it.
  enum : uint8_t { kNew, kRepeated, kOverlaps };

  struct Placed {
    Window window;
    size_t member;
    bool operator<(const Placed& other) const { return window < other.window; }
  };

  size_t window_;
  Scratch scratch_;
  Records records_;
  SubstringTexts texts_;
  ExternalSorter<Member> members_;
  ExternalSorter<Window> windows_;
  ExternalSorter<Cut> cuts_;
  size_t most_members_;
  std::vector<Member> group_;
  uint64_t group_hash_ = 0;
  bool spilled_ = false;
  Window first_{0, 0, 0};
  std::vector<Placed> same_place_;
  std::vector<uint8_t> marks_;
};

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

class SubstringStage final : public CorpusStage {
 public:
  explicit SubstringStage(int64_t threshold)
      : window_(static_cast<size_t>(threshold)), tag_(record_tag(fmt::format("substring {}", threshold))) {}

  std::unique_ptr<PartCollector> collect(FileSystem& files, const Path& record) const override {
    return std::make_unique<Collector>(window_, tag_, files, record);
  }
  void decide(const DecideContext& context, StageStats& stats,
              FunctionRef<void(uint32_t, std::span<const Decision>)> sink) const override {
    Decider decider(context, tag_, window_);
    decider.find();
    decider.report(stats, sink);
  }

 private:
  size_t window_;
  uint64_t tag_;
};

}  // namespace

TextSpan whole_words(std::string_view text, TextSpan span) {
  constexpr uint32_t kLongestWord = 32;
  const auto inside_character = [&](uint32_t at) {
    return at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;
  };
  while (span.begin < span.end && inside_character(span.begin)) ++span.begin;
  while (span.begin < span.end && inside_character(span.end)) --span.end;
  if (span.begin > 0 && !is_space(text[span.begin - 1])) {
    const uint32_t limit = std::min(span.end, span.begin + kLongestWord);
    uint32_t at = span.begin;
    while (at < limit && !is_space(text[at])) ++at;
    if (at < limit) span.begin = at + 1;
  }
  if (span.end < text.size() && !is_space(text[span.end])) {
    const uint32_t limit = span.end - span.begin > kLongestWord ? span.end - kLongestWord : span.begin;
    uint32_t at = span.end;
    while (at > limit && !is_space(text[at - 1])) --at;
    if (at > limit) span.end = at;
  }
  return span;
}

std::unique_ptr<CorpusStage> make_substring_stage(int64_t length_threshold) {
  return std::make_unique<SubstringStage>(length_threshold);
}

}  // namespace strata::data::dedup
