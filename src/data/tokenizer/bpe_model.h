// Byte-pair encoding of one piece: the model of a tokenizer.json.
//
// Symbols start as bytes (byte-level) or characters; then the neighbouring pair with the lowest rank is
// merged, the leftmost of equals, until no pair has a rule. Short pieces by a scan for the minimum over small
// arrays, long ones by a heap, so that no input is quadratic.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/tokenizer/merge_table.h"
#include "data/tokenizer/rank_merges.h"
#include "data/tokenizer/vocabulary.h"

namespace strata::data {

struct BpeConfig {
  std::string where = "model";                 // in the file, for messages
  std::vector<StringTable::Entry> vocabulary;  // views live as long as the constructor runs
  std::vector<std::pair<std::string_view, std::string_view>> merges;  // rank = position
  std::vector<IdMerge> id_merges;                                     // further rules, by ids
  std::vector<int32_t> unused;  // tokens that a text may pass through; at the end they fall apart again
  std::optional<std::string> unknown_token;
  std::string continuing_prefix;  // put before every symbol but a word's first
  std::string end_suffix;         // appended to a word's last symbol
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a piece that is a token is that token
  bool byte_level = false;     // pieces are raw bytes, the vocabulary is written in the byte alphabet
};

// What a thread needs while it encodes.
class BpeScratch {
 private:
  friend class BpeModel;
  struct Pending {  // a merge that waits in the heap
    uint32_t rank;
    int32_t id;
    size_t at;
    bool operator>(const Pending& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  struct Symbol {  // linked list of a long piece
    int32_t id;    // -1: merged away
    size_t previous;
    size_t next;
  };
  std::vector<int32_t> symbols_;
  std::vector<MergeRule> rules_;
  std::vector<Pending> heap_;
  std::vector<Symbol> list_;
  std::string mapped_;
};

class BpeModel {
 public:
  explicit BpeModel(const BpeConfig& config);  // DataError: a merge whose part or result is not a token, …

  // Appends the ids of one piece.
  void encode_piece(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const;

  const StringTable& vocabulary() const { return vocabulary_; }

 private:
  void start_symbols(std::string_view piece, BpeScratch& scratch) const;
  void start_from_characters(std::string_view text, std::vector<int32_t>& symbols) const;
  void merge_short(BpeScratch& scratch) const;
  void merge_long(BpeScratch& scratch) const;
  void encode_part(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const;
  void merge_bytes(std::string_view piece, BpeScratch& scratch) const;
  void start_rules(std::string_view piece, BpeScratch& scratch) const;
  void find_whole_pieces(const BpeConfig& config);
  void append_split(int32_t id, std::vector<int32_t>& out) const;
  bool can_cut_at_spaces(const BpeConfig& config) const;

  StringTable vocabulary_;
  StringTable whole_pieces_;  // tokens by their text in pieces, if a piece is exactly that token
  MergeTable merges_;
  std::unordered_map<int32_t, std::pair<int32_t, int32_t>> unused_;  // the pair that each comes from
  bool cuts_at_spaces_ = false;  // no merge crosses the place before the first U+2581 of a run
  std::array<int32_t, 256> byte_ids_{};
  bool all_bytes_ = false;             // every byte is a token: the fast start
  std::vector<MergeRule> byte_rules_;  // then, by two bytes
  std::array<int32_t, 256> fallback_ids_{};
  std::optional<int32_t> unknown_id_;
  std::string continuing_prefix_;
  std::string end_suffix_;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  bool byte_level_ = false;
};

}  // namespace strata::data
