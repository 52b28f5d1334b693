#include "data/text/spacy_words.h"

#include <algorithm>
#include <bitset>
#include <string>

#include "data/text/characters.h"
#include "data/text/short_hash.h"
#include "data/text/spacy_rules.h"

namespace strata::data {
namespace {

// The cache grows up to here, then it forgets everything: about 12 MB.
constexpr size_t kFirstSlots = size_t{1} << 12;
constexpr size_t kMaxRuns = size_t{1} << 17;
constexpr size_t kMaxBytes = size_t{1} << 22;
constexpr size_t kLongestRun = 128;

struct Run {
  uint64_t hash = 0;
  uint32_t text = 0, parts = 0;  // where its bytes and its tokens start
  uint16_t size = 0;             // bytes; 0: a free slot
  uint16_t count = 0;            // tokens
};

struct Part {
  uint8_t size, code_points;
  bool symbol, alpha, punctuation, end_mark;
};

struct ByteClasses {
  uint8_t bits[256];  // 1: a letter, 2: a digit, 4: another character of a run, 8: white space, 16: not ASCII
  ByteClasses() : bits() {
    const uint8_t* table = character_table();
    for (int b = 0; b < 256; ++b) {
      if (b >= 0x80) {
        bits[b] = 16;
      } else if (table[b] & kSpaceBit) {
        bits[b] = 8;
      } else {
        bits[b] = table[b] & kAlphaBit ? 1 : table[b] & kDecimalBit ? 2 : 4;
      }
    }
  }
};

const ByteClasses& byte_classes() {
  static const ByteClasses classes;
  return classes;
}

}  // namespace

struct SpacyWords::State {
  SpacyRules rules;
  std::vector<Run> slots = std::vector<Run>(kFirstSlots);  // a power of two of them, at most half full
  std::string bytes;
  std::vector<Part> parts;
  size_t runs = 0;
  std::vector<uint32_t> sizes;
  std::bitset<4096> maybe_exception;  // by hash: exceptions made of letters

  State() {
    for (const std::string_view text : rules.letter_exceptions()) maybe_exception.set(place(text));
  }
  size_t place(std::string_view text) const { return short_hash(text) % maybe_exception.size(); }

  void add_run(std::string_view run, std::vector<Word>& words);
  static Run& free_slot(std::vector<Run>& slots, uint64_t hash) {
    size_t slot = hash & (slots.size() - 1);
    while (slots[slot].size != 0) slot = (slot + 1) & (slots.size() - 1);
    return slots[slot];
  }
  void remember(std::string_view run, uint64_t hash, std::span<const Word> words);
};

void SpacyWords::State::remember(std::string_view run, uint64_t hash, std::span<const Word> words) {
  if (runs >= kMaxRuns || bytes.size() + run.size() > kMaxBytes || parts.size() > kMaxBytes) {
    std::fill(slots.begin(), slots.end(), Run{});
    bytes.clear();
    parts.clear();
    runs = 0;
  } else if (runs >= slots.size() / 2) {
    std::vector<Run> larger(slots.size() * 2);
    for (const Run& known : slots) {
      if (known.size != 0) free_slot(larger, known.hash) = known;
    }
    slots.swap(larger);
  }
  free_slot(slots, hash) = {hash, static_cast<uint32_t>(bytes.size()), static_cast<uint32_t>(parts.size()),
                            static_cast<uint16_t>(run.size()), static_cast<uint16_t>(words.size())};
  bytes += run;
  for (const Word& word : words) {
    parts.push_back({static_cast<uint8_t>(word.bytes.size()), static_cast<uint8_t>(word.code_points),
                     word.symbol, word.alpha, word.punctuation, word.end_mark});
  }
  ++runs;
}

void SpacyWords::State::add_run(std::string_view run, std::vector<Word>& words) {
  const bool cached = run.size() <= kLongestRun;
  uint64_t hash = 0;
  if (cached) {
    hash = short_hash(run);
    const size_t mask = slots.size() - 1;
    for (size_t slot = hash & mask; slots[slot].size != 0; slot = (slot + 1) & mask) {
      const Run& known = slots[slot];
      if (known.hash != hash || run != std::string_view(bytes).substr(known.text, known.size)) continue;
      const char* at = run.data();
      for (const Part *part = parts.data() + known.parts, *end = part + known.count; part < end; ++part) {
        words.push_back({.bytes = {at, part->size},
                         .code_points = part->code_points,
                         .symbol = part->symbol,
                         .alpha = part->alpha,
                         .punctuation = part->punctuation,
                         .end_mark = part->end_mark});
        at += part->size;
      }
      return;
    }
  }
  rules.cut(run, sizes);
  const size_t first = words.size();
  const char* at = run.data();
  for (const uint32_t size : sizes) {
    words.push_back(make_word({at, size}));
    at += size;
  }
  if (cached) remember(run, hash, std::span<const Word>(words).subspan(first));
}

SpacyWords::SpacyWords() : state_(std::make_unique<State>()) {}
SpacyWords::~SpacyWords() = default;
SpacyWords::SpacyWords(SpacyWords&&) noexcept = default;
SpacyWords& SpacyWords::operator=(SpacyWords&&) noexcept = default;

void SpacyWords::split(std::string_view text, std::vector<Word>& words) {
  const uint8_t* classes = byte_classes().bits;
  const uint8_t* table = character_table();
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    const char* begin = at;
    uint8_t seen = 0, bits = 0;
    while (at < end && (bits = classes[static_cast<uint8_t>(*at)]) < 8) {
      seen |= bits;
      ++at;
    }
    if (at < end && bits == 16) {
      seen |= 16;
      while (at < end) {
        const Character c = decode_utf8(at, end);
        if (table[c.value] & kSpaceBit) break;
        at += c.size;
      }
    }
    const std::string_view run(begin, static_cast<size_t>(at - begin));
    if ((seen == 1 && !state_->maybe_exception[state_->place(run)]) || seen == 2) {
      words.push_back({.bytes = run, .code_points = static_cast<uint32_t>(run.size()), .alpha = seen == 1});
    } else if (seen != 0) {
      state_->add_run(run, words);
    }
    // The white space behind it: one character, more of it comes back here as an empty run.
    if (at < end) at += decode_utf8(at, end).size;
  }
}

namespace {

// Calls `starts` with the place where the token before each sentence but the first ended, until it returns
// false.
template <typename Starts>
void find_sentences(std::string_view text, std::span<const Word> words, const Starts& starts) {
  bool ended = false;  // an end mark came, and nothing since but end marks and punctuation
  const char* behind = text.data();
  // White space is a token, and no punctuation; one space behind a word belongs to the word.
  const auto starts_with_space = [&](const char* next) {
    const char* from = behind < next && *behind == ' ' && behind > text.data() ? behind + 1 : behind;
    return ended && from < next;
  };
  for (const Word& word : words) {
    const bool space = starts_with_space(word.bytes.data());
    if (space || (ended && !word.punctuation && !word.end_mark)) {
      if (!starts(behind)) return;
      ended = false;
    }
    if (word.end_mark) ended = true;
    behind = word.bytes.data() + word.bytes.size();
  }
  if (starts_with_space(text.data() + text.size())) starts(behind);
}

}  // namespace

int64_t count_sentences(std::string_view text, std::span<const Word> words, int64_t limit) {
  int64_t sentences = 1;
  find_sentences(text, words, [&](const char*) { return ++sentences < limit; });
  return sentences;
}

void split_sentences(std::string_view text, std::span<const Word> words,
                     std::vector<std::string_view>& sentences) {
  const char* from = text.data();
  find_sentences(text, words, [&](const char* at) {
    sentences.emplace_back(from, static_cast<size_t>(at - from));
    from = at;
    return true;
  });
  sentences.emplace_back(from, static_cast<size_t>(text.data() + text.size() - from));
}

}  // namespace strata::data
