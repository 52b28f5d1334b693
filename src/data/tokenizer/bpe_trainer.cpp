#include "data/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>
#include <unordered_map>

#include "base/error.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// All pairs ever seen: their counts and the words that (may) hold them.
class PairTable {
 public:
  struct Pair {
    uint64_t key;
    int64_t count = 0;
    uint32_t gained_in = 0;  // the last round that gave it words
    std::vector<uint32_t> words{};
  };

  PairTable() : slots_(size_t{1} << 16), mask_(slots_.size() - 1) {}

  uint32_t index(int32_t left, int32_t right) {
    const uint64_t key = pair_key(left, right);
    size_t at = position(key);
    for (; slots_[at] != 0; at = (at + 1) & mask_) {
      if (pairs_[slots_[at] - 1].key == key) return slots_[at] - 1;
    }
    pairs_.push_back({.key = key});
    slots_[at] = static_cast<uint32_t>(pairs_.size());
    if (pairs_.size() * 2 > slots_.size()) grow();
    return static_cast<uint32_t>(pairs_.size() - 1);
  }
  Pair& operator[](uint32_t index) { return pairs_[index]; }
  size_t size() const { return pairs_.size(); }

 private:
  size_t position(uint64_t key) const { return ((key * 0x9E3779B97F4A7C15u) >> 29) & mask_; }
  void grow() {
    slots_.assign(slots_.size() * 4, 0);
    mask_ = slots_.size() - 1;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      size_t at = position(pairs_[i].key);
      while (slots_[at] != 0) at = (at + 1) & mask_;
      slots_[at] = static_cast<uint32_t>(i + 1);
    }
  }
  std::vector<Pair> pairs_;
  std::vector<uint32_t> slots_;  // pair index + 1
  size_t mask_;
};

struct Candidate {
  int64_t count;
  uint64_t key;
  uint32_t pair;
  // The heap's top: the largest count, of equal ones the smallest pair of ids.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : key > other.key;
  }
};

class Trainer {
 public:
  Trainer(const WordCounts& words, BpeVocabulary& vocabulary, const std::array<int32_t, 256>& byte_ids)
      : vocabulary_(vocabulary) {
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      ids_.emplace(vocabulary.tokens[id], static_cast<int32_t>(id));
    }
    size_t symbols = 0;
    for (const auto& word : words.words()) symbols += word.size;
    symbols_.reserve(symbols);
    words_.reserve(words.words().size());
    for (const auto& word : words.words()) {
      words_.push_back({symbols_.size(), word.size, word.count});
      for (const char byte : words.text(word)) symbols_.push_back(byte_ids[static_cast<uint8_t>(byte)]);
    }
    for (size_t w = 0; w < words_.size(); ++w) {
      const int32_t* symbol = &symbols_[words_[w].offset];
      for (size_t i = 0; i + 1 < words_[w].size; ++i) {
        change(symbol[i], symbol[i + 1], words_[w].count, static_cast<uint32_t>(w));
      }
    }
    push_gained();
  }

  void run(int64_t vocab_size, int64_t min_frequency) {
    while (static_cast<int64_t>(vocabulary_.tokens.size()) < vocab_size && !heap_.empty()) {
      Candidate top = heap_.top();
      heap_.pop();
      if (const int64_t now = pairs_[top.pair].count; top.count != now) {
        top.count = now;
        heap_.push(top);
        continue;
      }
      if (top.count < 1 || top.count < min_frequency) break;
      merge(top.pair);
    }
  }

 private:
  struct Word {
    size_t offset;
    size_t size;
    int64_t count;
  };

  // A pair gains (count > 0: in this word) or loses occurrences.
  void change(int32_t left, int32_t right, int64_t count, uint32_t word) {
    const uint32_t index = pairs_.index(left, right);
    PairTable::Pair& pair = pairs_[index];
    pair.count += count;
    if (count < 0) return;
    if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
    if (pair.gained_in != round_) {
      pair.gained_in = round_;
      gained_.push_back(index);
    }
  }

  void push_gained() {
    for (const uint32_t index : gained_) {
      const PairTable::Pair& pair = pairs_[index];
      if (pair.count > 0) heap_.push({pair.count, pair.key, index});
    }
    gained_.clear();
    ++round_;
  }

  void merge(uint32_t index) {
    const uint64_t key = pairs_[index].key;
    const auto left = static_cast<int32_t>(key >> 32);
    const auto right = static_cast<int32_t>(key & 0xFFFFFFFF);
    std::string text =
        vocabulary_.tokens[static_cast<size_t>(left)] + vocabulary_.tokens[static_cast<size_t>(right)];
    const auto [it, is_new] = ids_.try_emplace(text, static_cast<int32_t>(vocabulary_.tokens.size()));
    if (is_new) vocabulary_.tokens.push_back(std::move(text));
    vocabulary_.merges.emplace_back(left, right);
    const std::vector<uint32_t> holders = std::move(pairs_[index].words);
    pairs_[index].words = {};
    for (const uint32_t word : holders) merge_in_word(word, left, right, it->second);
    push_gained();
  }

  // Left to right. Every neighbour pair that goes or comes is counted, in the reference's order of events.
  void merge_in_word(uint32_t w, int32_t left, int32_t right, int32_t merged) {
    Word& word = words_[w];
    int32_t* symbols = &symbols_[word.offset];
    size_t write = 0;
    for (size_t read = 0; read < word.size;) {
      if (symbols[read] != left || read + 1 == word.size || symbols[read + 1] != right) {
        symbols[write++] = symbols[read++];
        continue;
      }
      if (write > 0) {
        change(symbols[write - 1], left, -word.count, w);
        change(symbols[write - 1], merged, word.count, w);
      }
      symbols[write++] = merged;
      read += 2;
      if (read < word.size) {
        change(right, symbols[read], -word.count, w);
        change(merged, symbols[read], word.count, w);
      }
    }
    word.size = write;
  }

  BpeVocabulary& vocabulary_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<int32_t> symbols_;
  std::vector<Word> words_;
  PairTable pairs_;
  std::vector<uint32_t> gained_;
  uint32_t round_ = 1;
  std::priority_queue<Candidate> heap_;
};

}  // namespace

BpeVocabulary learn_merges(const WordCounts& words, int64_t vocab_size, int64_t min_frequency,
                           const std::vector<std::string>& special_tokens) {
  BpeVocabulary vocabulary;
  const auto id_of = [&](const std::string& token) {
    const auto it = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), token);
    if (it == vocabulary.tokens.end()) {
      vocabulary.tokens.push_back(token);
      return static_cast<int32_t>(vocabulary.tokens.size() - 1);
    }
    return static_cast<int32_t>(it - vocabulary.tokens.begin());
  };
  for (const std::string& token : special_tokens) id_of(token);
  std::array<int32_t, 256> byte_ids{};
  for (uint32_t character = 0; character < 0x144; ++character) {
    const auto byte = character_to_byte(character);
    if (!byte) continue;
    std::string text;
    append_utf8(text, character);
    byte_ids[*byte] = id_of(text);
  }
  Trainer trainer(words, vocabulary, byte_ids);
  trainer.run(vocab_size, min_frequency);
  return vocabulary;
}

}  // namespace strata::data
