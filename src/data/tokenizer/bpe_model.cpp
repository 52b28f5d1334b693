#include "data/tokenizer/bpe_model.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

constexpr size_t kShortPiece = 96;  // symbols; above, the heap is faster than scanning for the minimum
constexpr size_t kNone = ~size_t{0};

constexpr std::string_view kSpaceSymbol = "\u2581";

// The start of the next word: the first U+2581 after `from` that does not follow another one.
size_t next_cut(std::string_view text, size_t from) {
  for (size_t at = from; (at = text.find(kSpaceSymbol, at)) != text.npos; at += kSpaceSymbol.size()) {
    if (at > from && !text.substr(0, at).ends_with(kSpaceSymbol)) return at;
  }
  return text.size();
}

}  // namespace

BpeModel::BpeModel(const BpeConfig& config)
    : vocabulary_(config.vocabulary),
      merges_(config.merges.size() + config.id_merges.size()),
      continuing_prefix_(config.continuing_prefix),
      end_suffix_(config.end_suffix),
      fuse_unknown_(config.fuse_unknown),
      byte_fallback_(config.byte_fallback),
      ignore_merges_(config.ignore_merges),
      byte_level_(config.byte_level) {
  std::string merged;
  for (size_t rank = 0; rank < config.merges.size(); ++rank) {
    const auto& [left, right] = config.merges[rank];
    const auto left_id = vocabulary_.find(left);
    const auto right_id = vocabulary_.find(right);
    if (!left_id || !right_id) {
      throw DataError("[tokenizer] {}.merges[{}] is ('{}', '{}'), but '{}' is not in model.vocab",
                      config.where, rank, left, right, left_id ? right : left);
    }
    if (right.size() < continuing_prefix_.size()) {
      throw DataError(
          "[tokenizer] {}.merges[{}] is ('{}', '{}'): the right part is shorter than "
          "continuing_subword_prefix '{}'",
          config.where, rank, left, right, continuing_prefix_);
    }
    merged.assign(left);
    merged += right.substr(continuing_prefix_.size());
    const auto id = vocabulary_.find(merged);
    if (!id) {
      throw DataError("[tokenizer] {}.merges[{}] is ('{}', '{}'), but '{}' is not in model.vocab",
                      config.where, rank, left, right, merged);
    }
    merges_.insert(*left_id, *right_id, {static_cast<uint32_t>(rank), *id});
  }
  for (const IdMerge& merge : config.id_merges) {
    merges_.insert(merge.left, merge.right, merge.rule);
    if (std::find(config.unused.begin(), config.unused.end(), merge.rule.id) != config.unused.end()) {
      unused_[merge.rule.id] = {merge.left, merge.right};
    }
  }

  all_bytes_ = byte_level_ && continuing_prefix_.empty() && end_suffix_.empty();
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string character;
    append_utf8(character, byte_to_character(static_cast<uint8_t>(byte)));
    byte_ids_[byte] = vocabulary_.find(character).value_or(-1);
    if (byte_ids_[byte] < 0) all_bytes_ = false;
    fallback_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  if (config.unknown_token) {
    unknown_id_ = vocabulary_.find(*config.unknown_token);
    if (!unknown_id_) {
      throw DataError("[tokenizer] {}.unk_token is '{}', but it is not in model.vocab", config.where,
                      *config.unknown_token);
    }
  }

  if (all_bytes_) {
    byte_rules_.resize(size_t{1} << 16);
    for (size_t pair = 0; pair < byte_rules_.size(); ++pair) {
      byte_rules_[pair] = merges_.find(byte_ids_[pair >> 8], byte_ids_[pair & 255]);
    }
  }
  find_whole_pieces(config);
  cuts_at_spaces_ = can_cut_at_spaces(config);
}

// With ignore_merges all tokens; else, of byte-level models, those that merging their own bytes leads to.
void BpeModel::find_whole_pieces(const BpeConfig& config) {
  if (!ignore_merges_ && !all_bytes_) return;
  std::vector<std::string> texts;
  std::vector<StringTable::Entry> entries;
  texts.reserve(config.vocabulary.size());
  BpeScratch scratch;
  for (const auto& entry : config.vocabulary) {
    if (!byte_level_) {
      entries.push_back(entry);
      continue;
    }
    auto bytes = unmap(entry.text);
    if (!bytes) continue;
    if (!ignore_merges_) {
      merge_bytes(*bytes, scratch);
      if (scratch.symbols_.size() != 1 || scratch.symbols_[0] != entry.id) continue;
    }
    entries.push_back({texts.emplace_back(std::move(*bytes)), entry.id});
  }
  whole_pieces_ = StringTable(entries);
}

bool BpeModel::can_cut_at_spaces(const BpeConfig& config) const {
  if (byte_level_ || !continuing_prefix_.empty() || !end_suffix_.empty()) return false;
  if (!vocabulary_.find(kSpaceSymbol)) return false;  // it could be part of a run of unknown characters
  const auto crosses = [](std::string_view text) { return next_cut(text, 0) < text.size(); };
  for (const auto& [left, right] : config.merges) {
    if (crosses(std::string(left) + std::string(right))) return false;
  }
  return std::none_of(config.id_merges.begin(), config.id_merges.end(),
                      [&](const IdMerge& merge) { return crosses(vocabulary_.text(merge.rule.id)); });
}

void BpeModel::encode_piece(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const {
  if (!cuts_at_spaces_) return encode_part(piece, scratch, out);
  for (size_t from = 0; from < piece.size();) {
    const size_t to = next_cut(piece, from);
    encode_part(piece.substr(from, to - from), scratch, out);
    from = to;
  }
}

void BpeModel::encode_part(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const {
  if (piece.empty()) return;
  if (const auto id = whole_pieces_.find(piece)) return out.push_back(*id);
  merge_bytes(piece, scratch);
  const auto& symbols = scratch.symbols_;
  if (unused_.empty()) {
    out.insert(out.end(), symbols.begin(), symbols.end());
  } else {
    for (const int32_t id : symbols) append_split(id, out);
  }
}

void BpeModel::merge_bytes(std::string_view piece, BpeScratch& scratch) const {
  start_symbols(piece, scratch);
  if (scratch.symbols_.size() > kShortPiece) {
    merge_long(scratch);
  } else if (scratch.symbols_.size() > 1) {
    start_rules(piece, scratch);
    merge_short(scratch);
  }
}

// The rules of all neighbours at the start; of bytes from a table of all their pairs.
void BpeModel::start_rules(std::string_view piece, BpeScratch& scratch) const {
  const auto& symbols = scratch.symbols_;
  auto& rules = scratch.rules_;
  rules.resize(symbols.size());
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    rules[i] = all_bytes_ ? byte_rules_[static_cast<size_t>(static_cast<uint8_t>(piece[i])) << 8 |
                                        static_cast<uint8_t>(piece[i + 1])]
                          : merges_.find(symbols[i], symbols[i + 1]);
  }
}

void BpeModel::append_split(int32_t id, std::vector<int32_t>& out) const {
  const auto parts = unused_.find(id);
  if (parts == unused_.end()) return out.push_back(id);
  append_split(parts->second.first, out);
  append_split(parts->second.second, out);
}

void BpeModel::start_symbols(std::string_view piece, BpeScratch& scratch) const {
  auto& symbols = scratch.symbols_;
  symbols.clear();
  if (all_bytes_) {
    symbols.resize(piece.size());
    for (size_t i = 0; i < piece.size(); ++i) symbols[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
  } else if (byte_level_) {
    scratch.mapped_.clear();
    append_mapped(scratch.mapped_, piece);
    start_from_characters(scratch.mapped_, symbols);
  } else {
    start_from_characters(piece, symbols);
  }
}

// The order of the unknown token among fallback bytes is that of the Hugging Face library: an unknown that
// waits to be fused is written only when a character of the vocabulary, or the end, follows.
void BpeModel::start_from_characters(std::string_view text, std::vector<int32_t>& symbols) const {
  const bool decorated = !continuing_prefix_.empty() || !end_suffix_.empty();
  bool unknown_waits = false;
  const char* begin = text.data();
  const char* end = begin + text.size();
  for (const char* at = begin; at < end;) {
    const uint32_t size = decode_code_point(at, end).size;
    std::string_view symbol(at, size);
    std::string with_affixes;
    if (decorated) {
      if (at > begin) with_affixes = continuing_prefix_;
      with_affixes += symbol;
      if (at + size == end) with_affixes += end_suffix_;
      symbol = with_affixes;
    }
    at += size;
    if (const auto id = vocabulary_.find(symbol)) {
      if (unknown_waits) symbols.push_back(*unknown_id_);
      unknown_waits = false;
      symbols.push_back(*id);
      continue;
    }
    const auto fallback = [&](char byte) { return fallback_ids_[static_cast<uint8_t>(byte)]; };
    if (byte_fallback_ &&
        std::all_of(symbol.begin(), symbol.end(), [&](char b) { return fallback(b) >= 0; })) {
      for (const char byte : symbol) symbols.push_back(fallback(byte));
      continue;
    }
    if (unknown_id_) {
      if (unknown_waits && !fuse_unknown_) symbols.push_back(*unknown_id_);
      unknown_waits = true;
    }
  }
  if (unknown_waits) symbols.push_back(*unknown_id_);
}

void BpeModel::merge_short(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& rules = scratch.rules_;  // rules[i] is the one of symbols i and i + 1
  size_t n = symbols.size();
  while (n > 1) {
    size_t best = 0;
    uint32_t best_rank = rules[0].rank;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (rules[i].rank < best_rank) {
        best_rank = rules[i].rank;
        best = i;
      }
    }
    if (best_rank == kNoRank) break;
    symbols[best] = rules[best].id;
    std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(best + 2),
              symbols.begin() + static_cast<std::ptrdiff_t>(n),
              symbols.begin() + static_cast<std::ptrdiff_t>(best + 1));
    if (best + 2 < n) {
      std::copy(rules.begin() + static_cast<std::ptrdiff_t>(best + 2),
                rules.begin() + static_cast<std::ptrdiff_t>(n - 1),
                rules.begin() + static_cast<std::ptrdiff_t>(best + 1));
    }
    --n;
    if (best > 0) rules[best - 1] = merges_.find(symbols[best - 1], symbols[best]);
    if (best + 1 < n) rules[best] = merges_.find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(n);
}

void BpeModel::merge_long(BpeScratch& scratch) const {
  auto& list = scratch.list_;
  auto& heap = scratch.heap_;
  const size_t n = scratch.symbols_.size();
  list.resize(n);
  heap.clear();
  for (size_t i = 0; i < n; ++i) {
    list[i] = {scratch.symbols_[i], i > 0 ? i - 1 : kNone, i + 1 < n ? i + 1 : kNone};
  }
  const auto offer = [&](size_t left) {
    const MergeRule rule = merges_.find(list[left].id, list[list[left].next].id);
    if (rule.rank == kNoRank) return false;
    heap.push_back({rule.rank, rule.id, left});
    return true;
  };
  for (size_t i = 0; i + 1 < n; ++i) offer(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const BpeScratch::Pending best = heap.back();
    heap.pop_back();
    BpeScratch::Symbol& left = list[best.at];
    if (left.id < 0 || left.next == kNone) continue;
    const size_t right = left.next;
    const MergeRule rule = merges_.find(left.id, list[right].id);
    if (rule.rank != best.rank || rule.id != best.id) continue;  // a neighbour has changed since
    left.id = best.id;
    left.next = list[right].next;
    list[right].id = -1;
    if (left.next != kNone) list[left.next].previous = best.at;
    if (left.previous != kNone && offer(left.previous)) {
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
    if (left.next != kNone && offer(best.at)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  scratch.symbols_.clear();
  for (size_t at = 0; at != kNone; at = list[at].next) scratch.symbols_.push_back(list[at].id);
}

}  // namespace strata::data
