#include "data/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <queue>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/huge_pages.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Lists of words, cut one after the other from large blocks; all live as long as this does.
class WordLists {
 public:
  uint32_t* take(size_t size) {
    if (size > static_cast<size_t>(end_ - next_)) {
      const size_t block = std::max(kBlock, size);
      blocks_.emplace_back();
      blocks_.back().reserve(block);  // untouched
      next_ = blocks_.back().data();
      end_ = next_ + block;
    }
    return std::exchange(next_, next_ + size);
  }

 private:
  static constexpr size_t kBlock = size_t{1} << 20;
  std::vector<HugeVector<uint32_t>> blocks_;
  uint32_t* next_ = nullptr;
  uint32_t* end_ = nullptr;
};

// The positions of words that (may) hold a pair, in a WordLists.
using Holders = std::span<uint32_t>;

// All pairs ever seen: their counts and their words.
class PairTable {
 public:
  struct Pair {
    uint64_t key;
    int64_t count = 0;
    Holders words{};
  };

  PairTable() : slots_(size_t{1} << 16), mask_(slots_.size() - 1) {}

  uint32_t index(int32_t left, int32_t right) {
    const uint64_t key = pair_key(left, right);
    const uint64_t hash = hashed(key);
    size_t at = hash & mask_;
    for (; slots_[at].index != 0; at = (at + 1) & mask_) {
      if (slots_[at].tag == tag(hash) && (*this)[slots_[at].index - 1].key == key)
        return slots_[at].index - 1;
    }
    if (size_ % kBlock == 0) {
      blocks_.emplace_back();
      blocks_.back().reserve(kBlock);
    }
    blocks_.back().push_back({.key = key});
    slots_[at] = {tag(hash), ++size_};
    if (size_t{size_} * 2 > slots_.size()) grow();
    return size_ - 1;
  }
  void prefetch(int32_t left, int32_t right) const {
    __builtin_prefetch(&slots_[hashed(pair_key(left, right)) & mask_], 1);
  }
  Pair& operator[](uint32_t index) { return blocks_[index / kBlock][index % kBlock]; }

 private:
  struct Slot {
    uint32_t tag = 0;
    uint32_t index = 0;  // + 1; 0: free
  };
  static uint64_t hashed(uint64_t key) {
    const uint64_t product = key * 0x9E3779B97F4A7C15u;
    return product ^ product >> 32;
  }
  static uint32_t tag(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }
  void grow() {
    slots_.assign(slots_.size() * 2, {});
    mask_ = slots_.size() - 1;
    for (uint32_t i = 0; i < size_; ++i) {
      const uint64_t hash = hashed((*this)[i].key);
      size_t at = hash & mask_;
      while (slots_[at].index != 0) at = (at + 1) & mask_;
      slots_[at] = {tag(hash), i + 1};
    }
  }
  static constexpr uint32_t kBlock = 1 << 16;
  std::vector<HugeVector<Pair>> blocks_;  // of kBlock pairs, which never move
  uint32_t size_ = 0;
  HugeVector<Slot> slots_;
  size_t mask_;
};

// What one merge changes on one side of the merged token, gathered by the neighbour there: all its places
// lose a pair with the old token and gain one with the new, so each neighbour is looked up once a merge.
class Neighbours {
 public:
  struct Change {
    int32_t id = 0;
    int64_t count = 0;
    size_t size = 0;         // words
    uint32_t last_word = 0;  // where size is not 0
    Holders words{};
  };
  void add(int32_t id, int64_t count, uint32_t word) {
    if (static_cast<size_t>(id) >= index_.size()) index_.resize(static_cast<size_t>(id) * 2 + 1024, 0);
    uint32_t& index = index_[static_cast<size_t>(id)];
    if (index == 0) {
      changes_.push_back({.id = id});
      index = static_cast<uint32_t>(changes_.size());
    }
    Change& change = changes_[index - 1];
    change.count += count;
    if (change.size != 0 && change.last_word == word) return;
    ++change.size;
    change.last_word = word;
    places_.push_back({index - 1, word});
  }
  // The changes since clear(), their words in `lists`.
  std::span<const Change> gather(WordLists& lists) {
    for (Change& change : changes_) change.words = Holders(lists.take(change.size), size_t{0});
    for (const auto& [index, word] : places_) {
      Holders& words = changes_[index].words;
      words = Holders(words.data(), words.size() + 1);
      words.back() = word;
    }
    return changes_;
  }
  void clear() {
    for (const Change& change : changes_) index_[static_cast<size_t>(change.id)] = 0;
    changes_.clear();
    places_.clear();
  }

 private:
  struct Place {
    uint32_t change;
    uint32_t word;
  };
  std::vector<uint32_t> index_;  // by id: place in changes_ + 1
  std::vector<Change> changes_;
  std::vector<Place> places_;
};

struct Candidate {
  int64_t count;
  uint64_t key;
  uint32_t pair;
  // The queue's top: the largest count, of equal ones the smallest pair of ids.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : key > other.key;
  }
};

// A priority queue that orders only what may come up soon: candidates below a floor just wait, which is what
// most pairs of a text do until the training ends. Only when none above is left is the floor lowered.
class Candidates {
 public:
  bool empty() const { return heap_.empty() && waiting_.empty(); }
  void push(const Candidate& candidate) {
    if (candidate.count < floor_) {
      waiting_.push_back(candidate);
    } else {
      heap_.push(candidate);
    }
  }
  Candidate pop() {
    if (heap_.empty()) lower_floor();
    const Candidate top = heap_.top();
    heap_.pop();
    return top;
  }

 private:
  void lower_floor() {
    const Candidate top = *std::max_element(waiting_.begin(), waiting_.end());
    floor_ = top.count / 4;
    const auto rest = std::partition(waiting_.begin(), waiting_.end(),
                                     [&](const Candidate& c) { return c.count < floor_; });
    heap_ = std::priority_queue<Candidate>(rest, waiting_.end());
    waiting_.erase(rest, waiting_.end());
  }

  std::priority_queue<Candidate> heap_;  // counts from floor_ on
  HugeVector<Candidate> waiting_;
  int64_t floor_ = std::numeric_limits<int64_t>::max();
};

class Trainer {
 public:
  Trainer(WordCounts&& words, BpeVocabulary& vocabulary, const std::array<int32_t, 256>& byte_ids)
      : vocabulary_(vocabulary) {
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      ids_.emplace(vocabulary.tokens[id], static_cast<int32_t>(id));
    }
    const WordCounts counts = std::move(words);  // gone before the merges, which need the memory
    size_t size = 0;
    counts.for_each([&](std::string_view text, int64_t) { size += kHeader + text.size(); });
    if (size > std::numeric_limits<uint32_t>::max()) {
      throw DataError("[tokenizer] the distinct pieces of the text take {} bytes; train on a sample of it",
                      size);
    }
    words_.reserve(size);
    count_byte_pairs(counts, byte_ids);
  }

  void run(int64_t vocab_size, int64_t min_frequency, FunctionRef<void()> check) {
    while (static_cast<int64_t>(vocabulary_.tokens.size()) < vocab_size && !candidates_.empty()) {
      Candidate top = candidates_.pop();
      if (const int64_t now = pairs_[top.pair].count; top.count != now) {
        top.count = now;
        if (now > 0) candidates_.push(top);
        continue;
      }
      if (top.count < 1 || top.count < min_frequency) break;
      merge(top.pair);
      check();
    }
  }

 private:
  // A word is stored in one place, so that one memory access finds it: its size, its count in two halves, its
  // symbols.
  static constexpr size_t kHeader = 3;

  void count_byte_pairs(const WordCounts& counts, const std::array<int32_t, 256>& byte_ids) {
    struct BytePair {
      int64_t count = 0;
      size_t words = 0;
      uint32_t last_word = 0;  // where words is not 0
      uint32_t* first = nullptr;
      uint32_t* next = nullptr;
    };
    std::vector<BytePair> by_bytes(size_t{1} << 16);
    counts.for_each([&](std::string_view text, int64_t count) {
      const auto at = static_cast<uint32_t>(words_.size());
      words_.push_back(static_cast<int32_t>(text.size()));
      words_.push_back(static_cast<int32_t>(static_cast<uint64_t>(count) >> 32));
      words_.push_back(static_cast<int32_t>(static_cast<uint64_t>(count) & 0xFFFFFFFF));
      for (size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<uint8_t>(text[i]);
        words_.push_back(byte_ids[byte]);
        if (i + 1 == text.size()) break;
        BytePair& pair = by_bytes[static_cast<size_t>(byte) << 8 | static_cast<uint8_t>(text[i + 1])];
        pair.count += count;
        if (pair.words == 0 || pair.last_word != at) ++pair.words;
        pair.last_word = at;
      }
    });
    for (size_t bytes = 0; bytes < by_bytes.size(); ++bytes) {
      BytePair& from = by_bytes[bytes];
      if (from.count == 0) continue;
      from.first = from.next = lists_.take(from.words);
      const uint32_t index = pairs_.index(byte_ids[bytes >> 8], byte_ids[bytes & 255]);
      pairs_[index].count = from.count;
      pairs_[index].words = Holders(from.first, from.words);
      offer(index);
    }
    std::vector<size_t> byte_of(vocabulary_.tokens.size());
    for (size_t byte = 0; byte < byte_ids.size(); ++byte) byte_of[static_cast<size_t>(byte_ids[byte])] = byte;
    for (size_t at = 0; at < words_.size();) {
      const int32_t* symbols = &words_[at] + kHeader;
      const auto size = static_cast<size_t>(words_[at]);
      for (size_t i = 0; i + 1 < size; ++i) {
        BytePair& pair = by_bytes[byte_of[static_cast<size_t>(symbols[i])] << 8 |
                                  byte_of[static_cast<size_t>(symbols[i + 1])]];
        if (pair.next == pair.first || pair.next[-1] != at) *pair.next++ = static_cast<uint32_t>(at);
      }
      at += kHeader + size;
    }
  }

  void offer(uint32_t index) {
    const PairTable::Pair& pair = pairs_[index];
    if (pair.count > 0) candidates_.push({pair.count, pair.key, index});
  }

  void merge(uint32_t index) {
    const uint64_t key = pairs_[index].key;
    const auto left = static_cast<int32_t>(key >> 32);
    const auto right = static_cast<int32_t>(key & 0xFFFFFFFF);
    std::string text =
        vocabulary_.tokens[static_cast<size_t>(left)] + vocabulary_.tokens[static_cast<size_t>(right)];
    const auto [it, is_new] = ids_.try_emplace(text, static_cast<int32_t>(vocabulary_.tokens.size()));
    if (is_new) vocabulary_.tokens.push_back(std::move(text));
    const int32_t merged = it->second;
    vocabulary_.merges.emplace_back(left, right);
    const Holders holders = std::exchange(pairs_[index].words, {});
    constexpr size_t kAhead = 12;
    for (size_t i = 0; i < holders.size(); ++i) {
      if (i + kAhead < holders.size()) {
        const int32_t* word = &words_[holders[i + kAhead]];
        __builtin_prefetch(word, 1);
        __builtin_prefetch(word + kHeader + 8, 1);  // where most end
      }
      merge_in_word(holders[i], left, right, merged);
    }
    bool doubled = false;  // the pair of the merged token with itself is offered once
    const std::span<const Neighbours::Change> before = before_.gather(lists_);
    for (size_t i = 0; i < before.size(); ++i) {
      if (i + kAhead < before.size()) {
        pairs_.prefetch(before[i + kAhead].id, left);
        pairs_.prefetch(before[i + kAhead].id, merged);
      }
      pairs_[pairs_.index(before[i].id, left)].count -= before[i].count;
      doubled |= before[i].id == merged;
      gained_.push_back(gain(pairs_.index(before[i].id, merged), before[i]));
    }
    before_.clear();
    const std::span<const Neighbours::Change> after = after_.gather(lists_);
    for (size_t i = 0; i < after.size(); ++i) {
      if (i + kAhead < after.size()) {
        pairs_.prefetch(right, after[i + kAhead].id);
        pairs_.prefetch(merged, after[i + kAhead].id);
      }
      pairs_[pairs_.index(right, after[i].id)].count -= after[i].count;
      const uint32_t index_after = gain(pairs_.index(merged, after[i].id), after[i]);
      if (after[i].id != merged || !doubled) gained_.push_back(index_after);
    }
    after_.clear();
    for (const uint32_t gained : gained_) offer(gained);
    gained_.clear();
  }

  uint32_t gain(uint32_t index, const Neighbours::Change& change) {
    PairTable::Pair& pair = pairs_[index];
    pair.count += change.count;
    if (pair.words.empty()) {
      pair.words = change.words;
    } else {
      uint32_t* both = lists_.take(pair.words.size() + change.words.size());
      std::copy(change.words.begin(), change.words.end(),
                std::copy(pair.words.begin(), pair.words.end(), both));
      pair.words = Holders(both, pair.words.size() + change.words.size());
    }
    return index;
  }

  // Left to right. A pair's own count stays, as in the reference.
  void merge_in_word(uint32_t at, int32_t left, int32_t right, int32_t merged) {
    int32_t* word = &words_[at];
    const auto size = static_cast<size_t>(word[0]);
    int32_t* symbols = word + kHeader;
    size_t read = 0;
    while (read + 1 < size && (symbols[read] != left || symbols[read + 1] != right)) ++read;
    if (read + 1 >= size) return;  // it lost the pair to an earlier merge
    const auto count = static_cast<int64_t>(static_cast<uint64_t>(static_cast<uint32_t>(word[1])) << 32 |
                                            static_cast<uint32_t>(word[2]));
    size_t write = read;
    while (read < size) {
      if (symbols[read] != left || read + 1 == size || symbols[read + 1] != right) {
        symbols[write++] = symbols[read++];
        continue;
      }
      if (write > 0) before_.add(symbols[write - 1], count, at);
      symbols[write++] = merged;
      read += 2;
      if (read < size) after_.add(symbols[read], count, at);
    }
    word[0] = static_cast<int32_t>(write);
  }

  BpeVocabulary& vocabulary_;
  std::unordered_map<std::string, int32_t> ids_;
  HugeVector<int32_t> words_;
  WordLists lists_;
  PairTable pairs_;
  Neighbours before_;
  Neighbours after_;
  std::vector<uint32_t> gained_;
  Candidates candidates_;
};

}  // namespace

BpeVocabulary learn_merges(WordCounts words, int64_t vocab_size, int64_t min_frequency,
                           const std::vector<std::string>& special_tokens, FunctionRef<void()> check) {
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
  Trainer trainer(std::move(words), vocabulary, byte_ids);
  trainer.run(vocab_size, min_frequency, check);
  return vocabulary;
}

}  // namespace strata::data
