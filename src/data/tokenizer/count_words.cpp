#include "data/tokenizer/count_words.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "data/tokenizer/normalizer.h"

namespace strata::data {
namespace {

constexpr size_t kBlock = size_t{1} << 20;   // bytes that one task counts, about
constexpr size_t kBatch = size_t{16} << 20;  // small texts are gathered up to this

// One table for each thread that counts at the same time; tasks borrow them.
class Tables {
 public:
  std::unique_ptr<WordCounts> take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<WordCounts>();
    auto table = std::move(free_.back());
    free_.pop_back();
    return table;
  }
  void give_back(std::unique_ptr<WordCounts> table) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(table));
  }
  WordCounts merged() {
    if (free_.empty()) return {};
    auto largest = std::max_element(free_.begin(), free_.end(),
                                    [](const auto& a, const auto& b) { return a->size() < b->size(); });
    std::swap(*largest, free_.front());
    for (size_t i = 1; i < free_.size(); ++i) {
      free_[0]->add(*free_[i]);
      free_[i].reset();
    }
    return std::move(*free_[0]);
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCounts>> free_;
};

// Counts the pieces of each line of `text`.
void count_lines(std::string_view text, const SplitPreset& split, WordCounts& counts) {
  constexpr size_t kPiecesAtOnce = 1024;
  std::vector<size_t> ends;
  std::string storage;
  const Normalizer nfc = Normalizer::nfc();
  WordQueue queue(counts);
  const char* text_end = text.data() + text.size();
  while (!text.empty()) {
    const void* newline = std::memchr(text.data(), '\n', text.size());
    const size_t size = newline == nullptr
                            ? text.size()
                            : static_cast<size_t>(static_cast<const char*>(newline) - text.data()) + 1;
    std::string_view line = text.substr(0, size);
    text.remove_prefix(size);
    if (split.nfc) line = nfc.apply(line, storage);
    const char* end_of_memory = line.data() == storage.data() ? line.data() + line.size() : text_end;
    for (size_t from = 0; from < line.size();) {
      ends.clear();
      scan_pieces(split.pattern, line, from, kPiecesAtOnce, ends);
      for (const size_t end : ends) {
        queue.add_inside(line.substr(from, end - from), end_of_memory);
        from = end;
      }
    }
  }
  queue.flush();
}

// Cuts after the first line end at or after every kBlock bytes.
std::vector<std::string_view> cut_at_lines(std::string_view text) {
  std::vector<std::string_view> blocks;
  while (!text.empty()) {
    size_t end = text.size();
    if (text.size() > kBlock) {
      const size_t newline = text.find('\n', kBlock);
      if (newline != text.npos) end = newline + 1;
    }
    blocks.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return blocks;
}

}  // namespace

CorpusCounts count_words(TextSource texts, const SplitPreset& split, FunctionRef<void()> check) {
  CorpusCounts out;
  Tables tables;
  const auto count = [&](const std::vector<std::string_view>& blocks) {
    const size_t at_once = 4 * static_cast<size_t>(compute_threads());
    for (size_t first = 0; first < blocks.size(); first += at_once) {
      check();
      const size_t end = std::min(blocks.size(), first + at_once);
      parallel_for(static_cast<int64_t>(end - first), [&](int64_t i) {
        auto table = tables.take();
        count_lines(blocks[first + static_cast<size_t>(i)], split, *table);
        tables.give_back(std::move(table));
      });
    }
  };

  std::string batch;           // small texts, one after the other
  std::vector<size_t> starts;  // of groups of whole texts, each of about kBlock bytes
  const auto flush = [&] {
    std::vector<std::string_view> blocks;
    for (size_t i = 0; i < starts.size(); ++i) {
      const size_t end = i + 1 < starts.size() ? starts[i + 1] : batch.size();
      blocks.push_back(std::string_view(batch).substr(starts[i], end - starts[i]));
    }
    count(blocks);
    batch.clear();
    starts.clear();
  };

  std::string_view text;
  while (texts(text)) {
    ++out.texts;
    out.bytes += static_cast<int64_t>(text.size());
    if (text.size() >= kBlock) {
      count(cut_at_lines(text));
      continue;
    }
    // A text without a final line end must not join the next one: it gets a block border.
    const bool joins = !batch.empty() && batch.back() != '\n';
    if (starts.empty() || joins || batch.size() - starts.back() >= kBlock) starts.push_back(batch.size());
    batch += text;
    if (batch.size() >= kBatch) flush();
  }
  flush();
  out.words = tables.merged();
  return out;
}

}  // namespace strata::data
